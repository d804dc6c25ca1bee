import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { counted, type Io, progressBar, sizeOf } from "./output.ts";

/** Declares `plant-store backup`. */
export function declareBackup(program: Command, { io, action }: CommandContext): void {
  const command = program
    .command("backup <file>")
    .description("Copy the database into a new file, even while a server runs")
    .addHelpText("after", examples("backup plants-2026-11-20.db"))
    .action(action(async ({ argument, config }) => backup((await config()).database, argument, io)));
  addDatabaseFlag(command);
}

/** A path that ends with a slash, `.` or `..`: a directory. */
const NO_FILE = /(?:^|\/)\.{0,2}$/;

/**
 * Copies the database as it is at one moment, even while a server writes to it. The file appears complete and fsynced,
 * or not at all, and never replaces another.
 *
 * @returns 0, or 1 if it was stopped.
 * @throws {ConfigError} If the database is not a file: PostgreSQL has tools of its own.
 * @throws {CommandError} If the target is a directory, exists, or cannot be written.
 * @throws {DatabaseError} If the database cannot be read or copied, or is marked as corrupt.
 */
export async function backup(database: DatabaseLocation, target: string, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  if (NO_FILE.test(target)) throw new CommandError(`Cannot back up to "${target}": expected a file`);
  // The adapter checks this too, but only after copying everything.
  if (existsSync(target))
    throw new CommandError(`Cannot back up to "${target}": file already exists; choose another one`);
  try {
    const bar = progressBar(io);
    const onProgress = (copied: number, total: number) => bar.update({ done: copied, total });
    const plants = await adapter.backup(resolve(target), { stop: io.stop, onProgress }).finally(bar.clear);
    if (plants === undefined) io.stderr("Stopped: no backup was made\n");
    else {
      const size = `${counted(plants, "plant")}, ${sizeOf(statSync(target).size)}`;
      io.stderr(`Backed up "${adapter.name}" to "${target}": ${size}\n`);
    }
    return plants === undefined ? 1 : 0;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
  }
}
