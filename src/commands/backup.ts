import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { type Io } from "./output.ts";

/** A path that ends with a slash, or with what names a directory. */
const NO_FILE = /(?:^|\/)\.{0,2}$/;

/**
 * `plant-store backup FILE`: copies the database as it is at one moment, also while a server writes to it. The file
 * appears complete and fsynced, or not at all, and never replaces another.
 *
 * @returns 0, or 1 when it was stopped.
 * @throws {ConfigError} If the database is not a file: PostgreSQL has tools of its own.
 * @throws {CommandError} If it names no file, or one that is there already or cannot be written.
 * @throws {DatabaseError} If the database cannot be read, or not be copied, or is marked as corrupt.
 */
export async function backup(database: DatabaseLocation, target: string, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  if (NO_FILE.test(target)) throw new CommandError(`Cannot back up to "${target}": expected a file`);
  // The adapter checks this too, but only after it has copied everything.
  if (existsSync(target)) throw new CommandError(`Cannot back up to "${target}": file already exists`);
  try {
    const isComplete = await adapter.backup(resolve(target), io.stop);
    io.stderr(isComplete ? `Backed up "${adapter.name}" to "${target}"\n` : "Stopped: there is no backup\n");
    return isComplete ? 0 : 1;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
  }
}
