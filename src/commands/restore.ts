import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import type { Subcommand } from "./command.ts";
import { counted, sizeOf } from "./messages.ts";
import { progressBar } from "./progress_bar.ts";

const HELP = `
Stop the server first: restore refuses a database that a process has open.`;

/**
 * `plant-store restore`: changes nothing unless the whole backup is sound, and no process has the
 * database open.
 */
export const restore: Subcommand = {
  usage: "restore <backup>",
  description: "Put a backup in the place of the database, and keep the old files",
  help: () => HELP,
  example: "restore plants-2026-11-20.db",
  async run({ argument: source, adapter, io }) {
    const database = await adapter();
    const bar = progressBar(io);

    try {
      const result = await database
        .restore(source, { stop: io.stop, onProgress: bar.update })
        .finally(bar.clear);
      if (result === undefined) throw new CommandError("Stopped: nothing was restored");

      const size = `${counted(result.plants, "plant")}, ${sizeOf(result.bytes)}`;
      const old =
        result.replaced === undefined
          ? "there were no old files"
          : `old files in "${result.replaced}"`;
      io.stderr(`Restored "${source}" to "${database.name}": ${size}; ${old}\n`);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      throw new CommandError(
        `Cannot restore "${source}": ${reasonOf(error)}; nothing was changed`,
        { cause: error },
      );
    }
  },
};
