import { statSync } from "node:fs";
import { chmod, link, lstat, mkdtemp, open, readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { BackupOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { connect } from "./connection.ts";
import { requireUnmarked } from "./corruption.ts";
import { toDatabaseError } from "./errors.ts";

/** The name of the copy until it is complete. */
export const DRAFT = "plants.db";

/**
 * Copies a plant-store's database, as it is at one moment after the call, into a new file, even while a server writes
 * to it. The file appears complete and fsynced, or not at all, and never replaces another. What a killed backup left in the
 * same directory is removed once nothing has written to it for an hour. A file that is marked as corrupt is not copied:
 * the copy could be sound, and lack plants. Nor is there a copy beside what is left of another database.
 *
 * @param target An absolute path.
 * @returns How many plants the copy has; nothing if it was stopped: then there is no file.
 * @throws {DatabaseError} If the database cannot be read, or not be copied, or is marked as corrupt.
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
  // A server may have found the corruption while all was copied.
  requireSource(path);
  // A backup is readable for whom the database is.
  await chmod(draft, (await stat(path)).mode & 0o777);
  await fsync(draft);
  requireNothingBeside(target);
  // Unlike a rename this fails if there is a file by now.
  await link(draft, target);
  await fsync(dirname(target));
  return plants;
}

/** VACUUM copies what it can reach: from a corrupt tree it makes a sound one with rows missing. */
function requireSource(path: string): void {
  try {
    requireUnmarked(path, "save what can be read: plant-store export; or check it: plant-store check");
  } catch (error) {
    throw toDatabaseError("copy", path, error);
  }
}

/** What is left of a database that was there before would be taken for the copy's own: it would read as the older one. */
function requireNothingBeside(target: string): void {
  const left = [`${target}-wal`, `${target}-journal`].find((file) => statSync(file, { throwIfNoEntry: false })?.size);
  if (left === undefined) return;
  throw new DatabaseError(`Cannot back up to "${target}": "${left}" of an earlier database is beside it: move it away`);
}

/** The one request to the Worker that copies. */
export interface BackupRequest {
  readonly path: string;
  readonly target: string;
}

/** Its response: how many plants the copy has, or why it failed. */
export type BackupResponse = { readonly plants: number } | { readonly failure: string };

/** How often to look how far the copy is, in milliseconds. */
const PROGRESS_MS = 200;

/** VACUUM blocks its thread until all is copied, and the program's own thread must still receive signals. */
async function vacuumInto(
  path: string,
  target: string,
  { stop, onProgress }: BackupOptions,
): Promise<number | undefined> {
  const worker = new Worker(new URL("./backup_worker.js", import.meta.url));
  const done = Promise.withResolvers<number | undefined>();
  const fail = (message: string) => done.reject(new DatabaseError(`Cannot copy database "${path}": ${message}`));
  const cancel = () => done.resolve(undefined);
  worker.addEventListener("message", ({ data }: MessageEvent<BackupResponse>) =>
    "failure" in data ? fail(data.failure) : done.resolve(data.plants),
  );
  worker.addEventListener("error", ({ message }) => fail(message));
  stop.addEventListener("abort", cancel);
  if (stop.aborted) cancel();
  const total = statSync(path).size;
  const watch = setInterval(
    () => onProgress(statSync(target, { throwIfNoEntry: false })?.size ?? 0, total),
    PROGRESS_MS,
  );
  worker.postMessage({ path, target } satisfies BackupRequest);
  // A copy that was cancelled can still be writing for a moment, into a directory that is removed with it.
  return done.promise.finally(() => {
    clearInterval(watch);
    stop.removeEventListener("abort", cancel);
    worker.terminate();
  });
}

const PREFIX = ".plant-store-backup-";

/** After how long without a write a private directory counts as left behind by a backup that was killed. */
const ABANDONED_AFTER_MS = 3_600_000;

/** Removes what killed backups and restores left. They cannot remove their directory, and an operator does not see it: the name is hidden. */
export async function removeAbandoned(parent: string): Promise<void> {
  for (const entry of await readdir(parent, { withFileTypes: true })) {
    // A link is not a directory here: nothing behind one is touched.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // This backup does not fail because of another user's directory, or one whose own backup removes it just now.
    await removeIfAbandoned(join(parent, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  const files = await readdir(path, { withFileTypes: true });
  // Ours hold the draft, and SQLite's journal of it. Whatever has something else in it is not ours.
  if (!files.every((file) => file.isFile() && file.name.startsWith(DRAFT))) return;
  const stats = await Promise.all([path, ...files.map(({ name }) => join(path, name))].map((entry) => lstat(entry)));
  const touchedAt = Math.max(...stats.map(({ mtimeMs }) => mtimeMs));
  if (touchedAt < Date.now() - ABANDONED_AFTER_MS) await rm(path, { recursive: true });
}

/** A directory for a draft. Beside the target, because a link cannot lead to another file system. */
export async function privateDirectory(parent: string) {
  const path = await mkdtemp(join(parent, PREFIX));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Brings a file, or the entries of a directory, to the disk. */
export async function fsync(path: string): Promise<void> {
  await using file = await open(path);
  await file.sync();
}
