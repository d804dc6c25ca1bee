import { withAbort } from "../async/timers.ts";
import { toCommandError } from "../database/refusals.ts";
import { CommandError, ConfigError } from "../errors.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant/plant.ts";
import { refusal } from "../settings/parsers.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { jsonLine } from "./export.ts";
import { counted, quoted } from "./formatting.ts";
import { warningsTo, writeOutput } from "./terminal.ts";

/** The commands of `plant-store plant`. */
export const PLANT_COMMANDS: readonly Subcommand[] = [
  {
    usage: "get <id...>",
    description: "Print plants, as export does; exit with 1 if one is missing",
    example: "plant get 7 8",
    async run({ args, adapter, io }) {
      const ids = args.map(parseId);
      const { name: database, openPlants } = await adapter();
      await using reader = await openPlants({ onWarning: warningsTo(io) });

      const plants = inOrder(ids, (await withAbort(reader.find(ids), io.stop)) ?? stopped());
      await writeOutput(io, plants.map(jsonLine).join(""));
      requireAll(ids, plants, database);
    },
  },

  {
    usage: "delete <id...>",
    description: "Delete plants, and print them in the format that import reads",
    flags: [["--yes", "Required: confirms the deletion"], ...DATABASE_FLAGS],
    example: "plant delete 7 --yes > deleted.ndjson",
    async run({ args, flags, adapter, io }) {
      const ids = args.map(parseId);
      const { name: database, openForWriting, howToRun } = await adapter();
      if (flags["yes"] !== true) throw new ConfigError("Cannot delete plants without --yes");

      const action = "delete the plants";
      const advice = `to see whether it was done, ${howToRun("plant get ID")}`;

      try {
        await using opened = await openForWriting({ onWarning: warningsTo(io) });
        const plants = inOrder(ids, (await withAbort(opened.find(ids), io.stop)) ?? stopped());

        // Print plants before deleting them: a plant that cannot be printed is kept.
        await writeOutput(io, plants.map(jsonLine).join(""));
        if (io.stop.aborted) stopped();
        await opened.delete(plants.map(({ id }) => id));

        io.stderr(`Deleted ${counted(plants.length, "plant")} from "${database}"\n`);
        requireAll(ids, plants, database);
      } catch (error) {
        throw toCommandError(error, { action, database, advice });
      }
    },
  },

  {
    usage: "count",
    description: "Print how many plants there are",
    example: "plant count",
    async run({ adapter, io }) {
      const { openPlants } = await adapter();
      await using reader = await openPlants();
      const count = (await withAbort(reader.count(), io.stop)) ?? stopped();
      await writeOutput(io, `${count}\n`);
    },
  },
];

function stopped(): never {
  throw new CommandError("Stopped: nothing was changed");
}

/** Parses an id as an integer in plain digits. */
function parseId(text: string): bigint {
  const id = /^-?\d{1,30}$/.test(text) ? BigInt(text) : undefined;
  if (id !== undefined && id >= INT64_MIN && id <= INT64_MAX) return id;
  throw refusal({ name: "id", text }, `expected an integer from ${INT64_MIN} to ${INT64_MAX}`);
}

/** Returns the plants in the order of the typed ids, each once. */
function inOrder(ids: readonly bigint[], plants: readonly NewPlant[]): readonly NewPlant[] {
  const byId = new Map(plants.map((plant) => [plant.id, plant]));
  return [...new Set(ids)].flatMap((id) => byId.get(id) ?? []);
}

/** The maximum number of missing ids in a message. */
const NAMED_IDS = 10;

/** @throws {CommandError} If a plant is missing: the message names the ids. */
function requireAll(ids: readonly bigint[], plants: readonly NewPlant[], database: string): void {
  const found = new Set(plants.map(({ id }) => id));
  const missing = [...new Set(ids).difference(found)];
  if (missing.length === 0) return;

  const named = missing.slice(0, NAMED_IDS).join(", ");
  const others = missing.length > NAMED_IDS ? `, and ${missing.length - NAMED_IDS} more` : "";
  throw new CommandError(
    `No plant in ${quoted(database)} has the id${missing.length > 1 ? "s" : ""} ${named}${others}`,
  );
}
