import { resolve } from "node:path";
import type { Command } from "commander";
import type { CheckProgress } from "../database/adapter.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { counted, type Io, progressBar, sizeOf } from "./output.ts";

/** Declares `plant-store restore`. */
export function declareRestore(program: Command, { io, action }: CommandContext): void {
  const command = program
    .command("restore <backup>")
    .description("Put a backup in the place of the database, and keep the old files")
    .addHelpText("after", examples("restore plants-2026-11-20.db"))
    .action(action(async ({ argument, config }) => restore((await config()).database, argument, io)));
  addDatabaseFlag(command);
}

/**
 * Replaces the database by a copy of a backup, after the whole copy was found sound, and while no process has the
 * database open. Moves the old files into a directory.
 *
 * @returns 0, or 1 if it was stopped.
 * @throws {ConfigError} If the database is not a file: PostgreSQL has tools of its own.
 * @throws {CommandError} If the backup is corrupt, or something cannot be read or written.
 * @throws {DatabaseError} If the database is in use, or the backup is not one.
 */
async function restore(database: DatabaseLocation, source: string, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  const bar = progressBar(io);
  const onProgress = ({ plants, total }: CheckProgress) => bar.update({ done: plants, total, plants });
  try {
    const result = await adapter.restore(resolve(source), { stop: io.stop, onProgress }).finally(bar.clear);
    switch (result.type) {
      case "restored": {
        const size = `${counted(result.plants, "plant")}, ${sizeOf(result.bytes)}`;
        const old = result.replaced === undefined ? "there were no old files" : `old files in "${result.replaced}"`;
        io.stderr(`Restored "${source}" to "${adapter.name}": ${size}; ${old}\n`);
        return 0;
      }
      case "stopped":
        io.stderr("Stopped: nothing was restored\n");
        return 1;
      case "corrupt":
        throw new CommandError(`Cannot restore "${source}": it is corrupt: ${result.finding}`);
      case "failed":
        throw new CommandError(`Cannot restore "${source}": ${result.reason}`);
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot restore "${source}": ${reasonOf(error)}`, { cause: error });
  }
}
