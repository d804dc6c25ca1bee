import { statSync } from "node:fs";
import { link, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { drizzle } from "drizzle-orm/bun-sqlite";

import { withAbort } from "../../async/timers.ts";
import { formatScopes } from "../../auth/token_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { BackupFormat, ReadOptions, Snapshot } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import type { BackgroundApi } from "./background_worker.ts";
import { Client, connect } from "./bun_driver.ts";
import { checkFile } from "./check.ts";
import { complete, draftIn } from "./draft.ts";
import { CODES, primaryCodeOf, withFileError } from "./errors.ts";
import { requireUnmarked } from "./markers.ts";
import { applyMigrations } from "./migrations.ts";
import { becomeOwner } from "./owner.ts";
import { databaseFile, makeDirectory } from "./path.ts";
import { tokens } from "./schema.ts";
import { drizzleRows } from "./sqlite_database.ts";
import { requireNotRoot, requireOwnDirectory } from "./trust.ts";
import { reasonOfCall, startWorker } from "./worker_calls.ts";

/**
 * Copies a snapshot of a database into a new file, even while a server writes to the database. The file
 * appears complete, checked and fsynced, or not at all. It never replaces another file.
 *
 * Refuses a database that is marked as corrupt: the copy could pass its check, and still lack plants.
 * Refuses a target that has the WAL or journal of another database beside it. Removes the drafts of
 * killed backups from the target's directory.
 *
 * @param target An absolute path.
 * @returns The number of plants in the copy; `undefined` if stopped, which leaves no file.
 * @throws {DatabaseError} If the database cannot be copied or is marked as corrupt. Also if the target's
 *   directory has no hard links, or another user can replace its files.
 * @throws {Error} The system's error if the file exists or cannot be written.
 */
export async function backupSqlite(
  path: string,
  target: string,
  options: ReadOptions,
): Promise<number | undefined> {
  connect(path, { access: "read" }).close();
  requireSource(path);

  async function copyInto(draft: string): Promise<number | undefined> {
    const plants = await vacuumInto(path, draft, options).catch((error: Error) => {
      throw new DatabaseError(`Cannot copy database "${path}": ${reasonOfCall(error)}`, {
        cause: error,
      });
    });
    // A server may have found corruption during the copy.
    requireSource(path);
    return plants;
  }

  // The backup has the permissions of the database.
  return await makeBackup(target, { copyInto, mode: statSync(path).mode, stop: options.stop });
}

/** Writes the snapshot of another kind of database, as {@linkcode backupSqlite} does for SQLite. */
export const writeBackup: BackupFormat["write"] = async (target, openSnapshot, options) => {
  async function copyInto(draft: string): Promise<number | undefined> {
    await using snapshot = await openSnapshot();
    // The database may take minutes before the first page.
    return await withAbort(copySnapshot(snapshot, draft, options), options.stop);
  }
  // A PostgreSQL database has no owner on this machine, so the owner of the target's directory counts.
  becomeOwner(target);
  return await makeBackup(target, { copyInto, mode: 0o600, stop: options.stop });
};

interface BackupOptions {
  /** Copies the database into an empty file. Returns the number of plants; `undefined` if stopped. */
  readonly copyInto: (draft: string) => Promise<number | undefined>;
  /** The permissions of the backup. */
  readonly mode: number;
  readonly stop: AbortSignal;
}

/** Makes a backup in a draft beside the target, checks it, and gives it the target's name. */
async function makeBackup(target: string, { copyInto, mode, stop }: BackupOptions) {
  makeDirectory(target);
  // Resolve links now: later they could lead elsewhere.
  const directory = await realpath(dirname(target));
  const file = join(directory, basename(target));
  requireOwnPlace(file, target);
  requireNothingBeside(file);

  await using draft = await draftIn(directory);
  const plants = await copyInto(draft.path).catch((error: Error) => {
    // Only the target's disk can be full: reading the database takes no space.
    if (!isFull(error)) throw error;
    throw new DatabaseError(`Cannot back up to "${target}": no space left on device`, {
      cause: error,
    });
  });
  if (plants === undefined) return undefined;

  const corrupt = (finding: string) =>
    `Cannot back up to "${target}": the copy is corrupt: ${finding}`;
  const checked = await withAbort(checkFile(draft.path, corrupt), stop);
  if (checked === undefined) return undefined;

  await complete(draft, mode);
  requireNothingBeside(file);
  // Unlike rename, link fails if the target exists by now.
  await link(draft.path, file);
  await draft.parent.sync();
  return plants;
}

function isFull(error: unknown): boolean {
  if (error instanceof DatabaseError) return isFull(error.cause);
  return primaryCodeOf(error) === CODES.FULL;
}

/** Writes a snapshot into an empty draft, which no other process reads. */
async function copySnapshot(
  snapshot: Snapshot,
  path: string,
  { stop }: ReadOptions,
): Promise<number | undefined> {
  using client = new Client(path, { readwrite: true, safeIntegers: true, strict: true });
  // Neither needs to survive a crash: a failed draft is removed, a complete one is fsynced. Bun's SQLite
  // refuses journal_mode = OFF.
  client.run("PRAGMA journal_mode = MEMORY");
  client.run("PRAGMA synchronous = OFF");
  applyMigrations(client);

  const { insert } = drizzleRows(client);
  const insertAll = client.transaction((page: readonly NewPlant[]) => {
    for (const plant of page) insert(plant);
  });
  let plants = 0;
  for await (const page of snapshot.pages()) {
    if (stop.aborted) return undefined;
    insertAll(page);
    plants += page.length;
  }

  const db = drizzle({ client });
  for (const token of snapshot.tokens) {
    const scopes = formatScopes(token.scopes);
    db.insert(tokens)
      .values({ ...token, scopes })
      .run();
  }
  return plants;
}

/** Refuses a directory where another user could replace the draft, and so get all plants. */
function requireOwnPlace(file: string, target: string): void {
  try {
    requireNotRoot(dirname(file), "its directory");
    requireOwnDirectory(file);
  } catch (cause) {
    if (!(cause instanceof DatabaseError)) throw cause;
    throw new DatabaseError(`Cannot back up to "${target}": ${cause.message}`, { cause });
  }
}

/** Refuses a file that is marked as corrupt: VACUUM skips rows that a corrupt tree does not lead to. */
function requireSource(path: string): void {
  const advice = () => `to check it, ${howToRunOn("check", databaseFile(path))}`;
  withFileError("copy", path, () => requireUnmarked(path, advice));
}

/**
 * Refuses a target with the WAL or journal of an earlier database beside it: SQLite would apply that
 * to the copy.
 */
function requireNothingBeside(target: string): void {
  const left = [`${target}-wal`, `${target}-journal`].find(
    (file) => statSync(file, { throwIfNoEntry: false })?.size,
  );
  if (left === undefined) return;
  throw new DatabaseError(
    `Cannot back up to "${target}": "${left}" of an earlier database is beside it, and may hold plants: choose another file`,
  );
}

/**
 * Copies in a Worker, because VACUUM blocks its thread, and the main thread must receive signals.
 */
async function vacuumInto(path: string, target: string, { stop }: ReadOptions) {
  const reader = startWorker<BackgroundApi>("background");
  try {
    return await withAbort(reader.call("copy", path, target), stop);
  } finally {
    // A stopped copy may go on writing for a moment, into a directory that is then removed.
    reader.terminate();
  }
}
