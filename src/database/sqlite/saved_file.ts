import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";

import { reasonOf } from "../../errors.ts";
import { howToRunOn, inShell } from "./advice.ts";
import type { SqliteConnection } from "./driver.ts";
import type { Loss } from "./file_identity.ts";
import { makeDirectory, syncDirectory } from "./path.ts";

/** How a server saves what only it still has. */
export interface Saving {
  /** Called with the path of a copy before it is made, which may take seconds. */
  onSaving(saved: string): void;
  /** Takes SQLite's exclusive lock on a file. Throws if another process has the file open. */
  lock(file: string): Disposable;
}

/**
 * Saves a database whose files were removed or replaced, from the connection that still has them open.
 * If only the WAL is gone, and no other process has the database open, moves what was in the WAL into
 * the database. Otherwise makes a copy: a backup beside the old path, which has its name once it is
 * complete and fsynced.
 *
 * BUG: on a full disk, or where this user may not write, no copy is made.
 *
 * @param file From `databaseFile`, when the database was opened.
 * @returns What was lost, where it is saved and what to do with it, or why it is not.
 */
export function saveFile(
  connection: SqliteConnection,
  file: string,
  { reason, lost }: Loss,
  { onSaving, lock }: Saving,
): string {
  if (lost === "index") return `${reason}; nothing is lost`;
  if (lost === "wal" && moveWal(connection, () => lock(file)))
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

    if (lost === "replaced") emptyWal(connection);
    const take =
      lost === "file"
        ? `to put it back, ${howToRunOn(`restore ${inShell(saved)}`, file)}`
        : `to add it to the database that is there now, ${howToRunOn(`import ${inShell(saved)} --tokens`, file)}`;
    return `${reason}; all of it is saved in "${saved}": ${take}`;
  } catch (error) {
    return `${reason}, and cannot be saved beside it (${reasonOf(error)}): unless it was only moved, what is not in a backup is lost`;
  }
}

/** Moves a WAL that is gone. Not beside another process: it may have begun another WAL. */
function moveWal(connection: SqliteConnection, lock: () => Disposable): boolean {
  try {
    using _ = lock();
    return emptyWal(connection);
  } catch {
    return false;
  }
}

/** Moves the WAL into the database. Returns whether all of it is there, fsynced. */
function emptyWal(connection: SqliteConnection): boolean {
  try {
    // The other thread may be making a checkpoint.
    connection.exec("PRAGMA busy_timeout = 1000");
    const [[busy] = []] = connection.query("PRAGMA wal_checkpoint(TRUNCATE)").values();
    return Number(busy) === 0;
  } catch {
    // On a full disk it stays.
    return false;
  }
}

/**
 * Makes an empty draft, and picks a free name for the copy. Another server of the same file may save
 * it at the same moment.
 */
function makeDraft(file: string) {
  for (;;) {
    const saved = `${file}-saved-${new Date().toISOString().replaceAll(":", "-")}`;
    const draft = `${saved}-draft`;
    try {
      // Synced by this descriptor: a later one may not be told that a write has failed.
      const descriptor = openSync(draft, "wx", 0o600);
      if (!existsSync(saved)) return { saved, draft, descriptor };
      closeSync(descriptor);
      rmSync(draft);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}
