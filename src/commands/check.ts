import { CommandError } from "../errors.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { counted } from "./formatting.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import { writeOutput } from "./terminal.ts";

/**
 * `plant-store check`: a server does not start on a file marked as corrupt until a check finds it
 * sound.
 */
export const check: Subcommand = {
  usage: "check",
  description: "Read the whole database for corruption, even while a server runs",
  flags: [JSON_FLAG, ...DATABASE_FLAGS],
  example: "check",
  async run({ flags, adapter, io }) {
    const database = await adapter();
    const checked = await database.check({ stop: io.stop });
    if (checked === undefined) throw new CommandError("Stopped: the check is incomplete");

    const { plants, pages } = checked;
    const result = { database: database.name, plants, pages };

    await printResult({ io, flags }, result, async () => {
      const size = `${counted(plants, "plant")}, ${counted(pages, "page")}`;
      await writeOutput(io, `"${database.name}" is sound: ${size}\n`);
    });
  },
};
