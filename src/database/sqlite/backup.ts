import { statSync } from "node:fs";
import { chmod, link, lstat, mkdtemp, open, readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { withAbort } from "../../async/deadline.ts";
import type { BackupOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { connect } from "./connection.ts";
import { requireUnmarked } from "./fail_stop.ts";
import { toDatabaseError } from "./errors.ts";
import { startReader } from "./integrity.ts";
import { reasonOf } from "./worker_calls.ts";

/** The name of the copy until it is complete. */
export const DRAFT = "plants.db";

/**
 * Copies a database, as it is at one moment after the call, into a new file, even while a server writes to it. The file
 * appears complete and fsynced, or not at all, and never replaces another one.
 *
 * Copies no file that is marked as corrupt: the copy could be sound, and lack plants. Copies to no path with the files
 * of another database beside it. Removes what killed backups left in the same directory once it is an hour old.
 *
 * @param target An absolute path.
 * @returns How many plants the copy has; `undefined` if it was stopped: then there is no file.
 * @throws {DatabaseError} If the database cannot be read or copied, or is marked as corrupt.
 * @throws {Error} The system's, if the file is there already or cannot be written.
 */
export async function backupSqlite(path: string, target: string, options: BackupOptions): Promise<number | undefined> {
  connect(path, { access: "read" }).close();
  requireSource(path);
  requireNothingBeside(target);
  await removeAbandoned(dirname(target));
  await using directory = await privateDirectory(dirname(target));
  const draft = join(directory.path, DRAFT);
  const plants = await vacuumInto(path, draft, options);
  if (plants === undefined) return undefined;
  // A server may have found corruption during the copy.
  requireSource(path);
  // The backup has the permissions of the database.
  await chmod(draft, (await stat(path)).mode & 0o777);
  await fsync(draft);
  requireNothingBeside(target);
  // Unlike a rename, this fails if there is a file by now.
  await link(draft, target);
  await fsync(dirname(target));
  return plants;
}

/** VACUUM copies what it can reach: the copy of a corrupt tree is sound, with rows missing. */
function requireSource(path: string): void {
  try {
    requireUnmarked(path, "save what can be read: plant-store export; or check it: plant-store check");
  } catch (error) {
    throw toDatabaseError("copy", path, error);
  }
}

/** SQLite would take the WAL of an earlier database for that of the copy, and read the older plants. */
function requireNothingBeside(target: string): void {
  const left = [`${target}-wal`, `${target}-journal`].find((file) => statSync(file, { throwIfNoEntry: false })?.size);
  if (left === undefined) return;
  throw new DatabaseError(`Cannot back up to "${target}": "${left}" of an earlier database is beside it: move it away`);
}

const PROGRESS_MS = 200;

/** Copies in a Worker, because VACUUM blocks its thread, and the main thread must receive signals. */
async function vacuumInto(
  path: string,
  target: string,
  { stop, onProgress }: BackupOptions,
): Promise<number | undefined> {
  const total = statSync(path).size;
  const copied = () => statSync(target, { throwIfNoEntry: false })?.size ?? 0;
  const reader = startReader();
  const timer = setInterval(() => onProgress(copied(), total), PROGRESS_MS);
  try {
    return await withAbort(reader.call("copy", path, target), stop);
  } catch (error) {
    throw new DatabaseError(`Cannot copy database "${path}": ${reasonOf(error as Error)}`);
  } finally {
    clearInterval(timer);
    // A stopped copy may write for another moment, into a directory that is removed.
    reader.terminate();
  }
}

const PREFIX = ".plant-store-backup-";

/** After how long without a write a private directory counts as abandoned by a killed backup. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Removes the directories of killed backups and restores, which have hidden names: an operator does not notice them.
 */
export async function removeAbandoned(parent: string): Promise<void> {
  for (const entry of await readdir(parent, { withFileTypes: true })) {
    // Not for a link: its target stays untouched.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // It may be another user's, or its own backup may remove it now: no reason for this backup to fail.
    await removeIfAbandoned(join(parent, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  const files = await readdir(path, { withFileTypes: true });
  // Ours has only the draft and its journal.
  if (!files.every((file) => file.isFile() && file.name.startsWith(DRAFT))) return;
  const stats = await Promise.all([path, ...files.map(({ name }) => join(path, name))].map((entry) => lstat(entry)));
  const touchedAt = Math.max(...stats.map(({ mtimeMs }) => mtimeMs));
  if (touchedAt < Date.now() - ABANDONED_AFTER_MS) await rm(path, { recursive: true });
}

/** A directory for a draft. Beside the target, because a hard link stays in one file system. */
export async function privateDirectory(parent: string) {
  const path = await mkdtemp(join(parent, PREFIX));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Fsyncs a file, or the entries of a directory. */
export async function fsync(path: string): Promise<void> {
  await using file = await open(path);
  await file.sync();
}
