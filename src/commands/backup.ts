import { existsSync } from "node:fs";
import { chmod, link, mkdtemp, open, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { copyDatabase } from "../adapters/sqlite/reader.ts";
import { CommandError, type Io, isDone, reasonOf } from "./io.ts";

/**
 * `plant-store backup FILE`: copies the database as it is at one moment, also while a server writes to it. The file
 * appears complete and fsynced, or not at all, and never replaces another.
 *
 * @returns 0, or 1 when it was stopped.
 * @throws {CommandError} If the file is there already or cannot be written.
 * @throws {DatabaseFileError} If the database cannot be read, or not be copied.
 */
export async function backup(databasePath: string, target: string, io: Io): Promise<number> {
  // The link would say so, too, but only after the work.
  if (existsSync(target)) throw new CommandError(`Cannot back up to "${target}": file already exists`);
  try {
    const isThere = await copyTo(databasePath, resolve(target), io.stop);
    io.stderr(isThere ? `Backed up "${databasePath}" to "${target}"\n` : "Stopped: there is no backup\n");
    return isThere ? 0 : 1;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
  }
}

/** Resolves to whether the file is there: not when it was stopped. */
async function copyTo(databasePath: string, target: string, stop: AbortSignal): Promise<boolean> {
  await using directory = await privateDirectory(dirname(target));
  const draft = join(directory.path, "plants.db");
  using copy = copyDatabase(databasePath, draft);
  // A backup is readable for whom the database is.
  const written = copy.done.then(() => copyMode(databasePath, draft)).then(() => fsync(draft));
  if (!(await isDone(written, stop))) return false;
  // Unlike a rename this fails where there is a file by now.
  await link(draft, target);
  await fsync(dirname(target));
  return true;
}

async function copyMode(from: string, to: string): Promise<void> {
  await chmod(to, (await stat(from)).mode & 0o777);
}

/** Beside the target, because a link cannot lead to another file system. */
async function privateDirectory(parent: string) {
  const path = await mkdtemp(join(parent, ".plant-store-backup-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function fsync(path: string): Promise<void> {
  await using file = await open(path);
  await file.sync();
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
