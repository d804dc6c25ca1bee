import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";

import { reasonOf } from "../../errors.ts";
import { howToRunOn, inShell } from "./advice.ts";
import type { SqliteConnection } from "./driver.ts";
import type { Loss } from "./file_identity.ts";
import { makeDirectory, syncDirectory } from "./path.ts";

/**
 * Saves a database whose files were removed or replaced, from the connection that still has them open.
 * The copy is a backup beside the old path. It has its name once it is complete and fsynced.
 *
 * BUG: on a full disk, or where this user may not write, nothing is saved.
 *
 * @param file From `databaseFile`, when the database was opened.
 * @param onSaving Called with the path of the copy: saving may take seconds.
 * @returns What was lost, where the copy is and what to do with it, or why there is none.
 */
export function saveFile(
  connection: SqliteConnection,
  file: string,
  { reason, isFinal, isReplaced }: Loss,
  onSaving: (saved: string) => void,
): string {
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

    if (isReplaced) emptyWal(connection);
    const take = isFinal
      ? `to add it to the database that is there now, ${howToRunOn(`import ${inShell(saved)} --tokens`, file)}`
      : `to put it back, ${howToRunOn(`restore ${inShell(saved)}`, file)}`;
    return `${reason}; all of it is saved in "${saved}": ${take}`;
  } catch (error) {
    return `${reason}, and cannot be saved beside it (${reasonOf(error)}): unless it was only moved, what is not in a backup is lost`;
  }
}

/** Moves the WAL into the file that no path leads to. */
function emptyWal(connection: SqliteConnection): void {
  try {
    // The other thread may be making a checkpoint.
    connection.exec("PRAGMA busy_timeout = 1000; PRAGMA wal_checkpoint(TRUNCATE)");
  } catch {
    // On a full disk it stays, but what it holds is saved.
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
