import { CommandError } from "../errors.ts";
import type { Subcommand } from "./command.ts";
import { counted } from "./messages.ts";
import { writeOutput } from "./process.ts";
import { progressBar } from "./progress_bar.ts";

/**
 * `plant-store check`: a server does not start on a file that was found corrupt, until a check
 * finds it sound.
 */
export const check: Subcommand = {
  usage: "check",
  description: "Read the whole database for corruption, even while a server runs",
  example: "check",
  async run({ adapter, io }) {
    const database = await adapter();
    const bar = progressBar(io);
    const result = await database
      .check({ stop: io.stop, onProgress: bar.update })
      .finally(bar.clear);
    if (result === undefined) throw new CommandError("Stopped: the check is incomplete");
    const size = `${counted(result.plants, "plant")}, ${counted(result.pages, "page")}`;
    await writeOutput(io, `"${database.name}" is sound: ${size}\n`);
  },
};
