import { statSync } from "node:fs";
import { link, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { withAbort } from "../../async/timers.ts";
import type { ReadOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import type { BackgroundApi } from "./background_worker.ts";
import { connect } from "./bun_driver.ts";
import { checkFile } from "./check.ts";
import { complete, draftIn } from "./draft.ts";
import { CODES, primaryCodeOf, withFileError } from "./errors.ts";
import { requireUnmarked } from "./markers.ts";
import { databaseFile } from "./path.ts";
import { requireNotRoot, requireOwnDirectory } from "./trust.ts";
import { reasonOfCall, startWorker } from "./worker_calls.ts";

/**
 * Copies a database, as it is at one moment after the call, into a new file, even while a server
 * writes to it. The file appears complete, checked and fsynced, or not at all, and never replaces
 * another one.
 *
 * Copies no file that is marked as corrupt: the copy could be sound, and lack plants. Copies to no
 * path with the files of another database beside it. Removes what killed backups left in the same
 * directory.
 *
 * @param target An absolute path.
 * @returns The number of plants in the copy; `undefined` if stopped, which leaves no file.
 * @throws {DatabaseError} If the database cannot be read or copied, or is marked as corrupt; if the
 *   target's directory has no hard links, or another user can replace what is in it.
 * @throws {Error} The system's, if the file is there already or cannot be written.
 */
export async function backupSqlite(
  path: string,
  target: string,
  options: ReadOptions,
): Promise<number | undefined> {
  connect(path, { access: "read" }).close();
  requireSource(path);

  // Without links, which could lead elsewhere in a moment.
  const directory = await realpath(dirname(target));
  const file = join(directory, basename(target));
  requireOwnPlace(file, target);
  requireNothingBeside(file);

  await using draft = await draftIn(directory);
  const plants = await vacuumInto(path, draft.path, options).catch((error: Error) => {
    // The copy's disk: reading the database takes no space.
    const isFull = primaryCodeOf(error) === CODES.FULL;
    throw new DatabaseError(
      isFull
        ? `Cannot back up to "${target}": no space left on device`
        : `Cannot copy database "${path}": ${reasonOfCall(error)}`,
      { cause: error },
    );
  });
  if (plants === undefined) return undefined;

  // A server may have found corruption during the copy.
  requireSource(path);
  const corrupt = (finding: string) =>
    `Cannot back up to "${target}": the copy is corrupt: ${finding}`;
  const checked = await withAbort(
    checkFile(draft.path, corrupt, () => {}),
    options.stop,
  );
  if (checked === undefined) return undefined;

  // The backup has the permissions of the database.
  await complete(draft, statSync(path).mode);
  requireNothingBeside(file);
  // Unlike a rename, this fails if there is a file by now.
  await link(draft.path, file);
  await draft.parent.sync();
  return plants;
}

/** Whoever can replace a draft by a directory of theirs gets all plants. */
function requireOwnPlace(file: string, target: string): void {
  try {
    requireNotRoot(dirname(file), "its directory");
    requireOwnDirectory(file);
  } catch (cause) {
    if (!(cause instanceof DatabaseError)) throw cause;
    throw new DatabaseError(`Cannot back up to "${target}": ${cause.message}`, { cause });
  }
}

/** VACUUM copies what it can reach: the copy of a corrupt tree is sound, with rows missing. */
function requireSource(path: string): void {
  const advice = () => `to check it, ${howToRunOn("check", databaseFile(path))}`;
  withFileError("copy", path, () => requireUnmarked(path, advice));
}

/**
 * SQLite would take the WAL of an earlier database for that of the copy, and read the older plants.
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

const PROGRESS_MS = 200;

/**
 * Copies in a Worker, because VACUUM blocks its thread, and the main thread must receive signals.
 */
async function vacuumInto(path: string, target: string, { stop, onProgress }: ReadOptions) {
  const total = statSync(path).size;
  const copied = () => statSync(target, { throwIfNoEntry: false })?.size ?? 0;
  const reader = startWorker<BackgroundApi>("background");
  const timer = setInterval(() => onProgress({ done: copied(), total }), PROGRESS_MS);

  try {
    return await withAbort(reader.call("copy", path, target), stop);
  } finally {
    clearInterval(timer);
    // A stopped copy may write for another moment, into a directory that is removed.
    reader.terminate();
  }
}
