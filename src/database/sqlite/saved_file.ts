import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";

import { sleepSync } from "../../async/timers.ts";
import { reasonOf } from "../../errors.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn, inShell } from "./advice.ts";
import type { SqliteConnection } from "./driver.ts";
import type { Loss } from "./file_identity.ts";
import { makeDirectory, syncDirectory } from "./path.ts";

/** How a server saves a database whose files were removed or replaced while it was open. */
export interface Saving {
  /** Called with the path of the copy before the copy begins: copying may take seconds. */
  onSaving(saved: string): void;
  /**
   * Takes SQLite's exclusive lock on a file.
   *
   * @throws {DatabaseError} If another process has the file open.
   */
  lock(file: string): Disposable;
}

/**
 * Saves a database whose files were removed or replaced, through the connection that has them open:
 *
 * - If only the WAL is gone, and no other process has the database open, moves the content of the WAL
 *   into the database file.
 * - Otherwise copies the database to a backup beside its old path. The backup gets its final name once
 *   it is complete and fsynced.
 *
 * BUG: on a full disk, or in a directory that this user may not write to, it saves nothing.
 *
 * @param file From `databaseFile`, when the database was opened.
 * @returns A message for the operator: the loss, where the database is saved and how to use that, or
 *   why it could not be saved.
 */
export function saveFile(
  connection: SqliteConnection,
  file: string,
  { reason, lost }: Loss,
  { onSaving, lock }: Saving,
): string {
  if (lost === "index") return `${reason}; nothing is lost`;
  // Never wait: a process that opens the file now begins a new WAL beside the old index. Once it has written,
  // only a copy that was made before has the content.
  if (lost === "wal" && moveWal(connection, () => lock(file), 1))
    return `${reason}; what it held is in "${file}" now, and nothing is lost`;

  try {
    makeDirectory(file);
    const { saved, draft, descriptor } = makeDraft(file);
    onSaving(saved);
    try {
      connection.exec(`VACUUM INTO '${draft.replaceAll("'", "''")}'`);
      fsyncSync(descriptor);
      renameSync(draft, saved);
    } catch (error) {
      rmSync(draft, { force: true });
      throw error;
    } finally {
      closeSync(descriptor);
    }
    syncDirectory(dirname(saved));

    const take =
      lost === "file"
        ? `to put it back, ${howToRunOn(`restore ${inShell(saved)}`, file)}`
        : `to add it to the database that is there now, ${howToRunOn(`import ${inShell(saved)} --tokens`, file)}`;
    return `${reason}; all of it is saved in "${saved}": ${take}`;
  } catch (error) {
    return `${reason}, and cannot be saved beside it (${reasonOf(error)}): unless it was only moved, what is not in a backup is lost`;
  } finally {
    // A new process would apply the WAL to the file that is there now.
    if (lost === "replaced") moveWal(connection, () => lock(file), MOVE_ATTEMPTS);
  }
}

/**
 * Moves the WAL into the database file that the connection has open. Returns whether all of it was
 * moved and fsynced.
 */
function moveWal(
  connection: SqliteConnection,
  lock: () => Disposable,
  maxAttempts: number,
): boolean {
  // Another process that has opened the file at the path may use this WAL, or a new one. A command has it
  // open for a moment only, and the checkpoint of another thread ends.
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    if (attempt > 0) sleepSync(MOVE_PAUSE_MS);
    try {
      // Otherwise each attempt would wait for a reader of the old file, such as Litestream.
      connection.exec("PRAGMA busy_timeout = 0");
      using _ = lock();
      const [[busy] = []] = connection.query("PRAGMA wal_checkpoint(TRUNCATE)").values();
      if (Number(busy) === 0) return true;
    } catch (error) {
      // The disk may be full. After a failed fsync, a second one would hide it.
      if (!(error instanceof DatabaseError)) return false;
    }
  }
  return false;
}

/** How often to try to move a WAL: for a second in all. */
const MOVE_ATTEMPTS = 50;
/** The pause before the next attempt, in milliseconds. */
const MOVE_PAUSE_MS = 20;

/**
 * Creates an empty draft, and picks a free name for the copy: another server of the same file may be
 * saving it too.
 */
function makeDraft(file: string) {
  for (;;) {
    const saved = `${file}-saved-${new Date().toISOString().replaceAll(":", "-")}`;
    const draft = `${saved}-draft`;
    try {
      // Fsync through this descriptor: one that is opened later may not see an earlier write error.
      const descriptor = openSync(draft, "wx", 0o600);
      if (!existsSync(saved)) return { saved, draft, descriptor };
      closeSync(descriptor);
      rmSync(draft);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}
