import type { Command } from "commander";
import type { CheckProgress } from "../database/adapter.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { CommandError } from "../errors.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { counted, type Io, progressBar, writeOutput } from "./output.ts";

/** Declares `plant-store check`. */
export function declareCheck(program: Command, { io, action }: CommandContext): void {
  const command = program
    .command("check")
    .description("Read the whole database for corruption, even while a server runs")
    .addHelpText("after", examples("check"))
    .action(action(async ({ config }) => check((await config()).database, io)));
  addDatabaseFlag(command);
}

/**
 * Checks the whole database for corruption, even while a server writes to it, and prints the result. A server does not
 * start on a file that was found corrupt, until a check finds it sound.
 *
 * @returns 0 for a sound database; 1 if it was stopped.
 * @throws {ConfigError} If the database is not a file: PostgreSQL has tools of its own.
 * @throws {CommandError} If the database is corrupt, or could not be checked.
 */
async function check(database: DatabaseLocation, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  const bar = progressBar(io);
  const onProgress = ({ plants, total }: CheckProgress) => bar.update({ done: plants, total, plants });
  const result = await adapter.check({ stop: io.stop, onProgress }).finally(bar.clear);
  switch (result.type) {
    case "sound": {
      const size = `${counted(result.plants, "plant")}, ${counted(result.pages, "page")}`;
      await writeOutput(io, `"${adapter.name}" is sound: ${size}\n`);
      return 0;
    }
    case "stopped":
      io.stderr("Stopped: the check is incomplete\n");
      return 1;
    case "corrupt":
      throw new CommandError(`"${adapter.name}" is corrupt: ${result.finding}`);
    case "failed":
      throw new CommandError(result.reason);
  }
}
