import { rmSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { firstRow, type SqlClient } from "./driver.ts";
import { createPrivateFile, databaseFile, walBytes } from "./files.ts";

/**
 * A file beside a database, `plants.db-unsynced`: an fsync of the database or of its WAL failed,
 * and nothing has been done about it. What the next process finds there may be in the page cache
 * only, and no later fsync brings it to the disk.
 */
export function unsyncedMarker(path: string): string {
  return `${databaseFile(path)}-unsynced`;
}

/**
 * Writes the {@linkcode unsyncedMarker} if possible. Not synced itself: a power loss ends the page
 * cache as well.
 */
export function markUnsynced(path: string): void {
  try {
    createPrivateFile(unsyncedMarker(path), "");
  } catch {
    // It is there; or the disk that failed is full or read-only by now.
  }
}

/**
 * Resets the WAL after a failed fsync. The kernel considers the pages of that fsync clean, so no
 * later one writes them to the disk. SQLite still finds their transactions in the page cache, and a
 * 200 could rest on them.
 *
 * @throws {DatabaseError} If another process uses the WAL, even one that only reads: it may have
 *   read such transactions.
 */
export function resetUnsyncedWal(client: SqlClient, path: string): void {
  if (!resetWal(client)) throw new DatabaseError(IN_USE);
  rmSync(unsyncedMarker(path), { force: true });
}

const IN_USE =
  "an earlier fsync failed, and another process is reading the WAL; try again when that process has ended";

/**
 * Moves the WAL into the database, so that the next commit begins the WAL anew. Takes longer for a
 * larger WAL.
 *
 * @returns False if another process uses the WAL: then it was not reset.
 */
export function resetWal(client: SqlClient): boolean {
  const [busy, pages] = firstRow(client, "PRAGMA wal_checkpoint(RESTART)");
  if (Number(busy) !== 0) return false;

  // Any commit will do: it replaces the header of the WAL on the disk, and with it the transactions
  // that the WAL still has.
  if (Number(pages) > 0) client.all("PRAGMA user_version = 0");
  return true;
}

/**
 * Closes a connection and leaves the file and its WAL as they are. Otherwise the last connection to
 * close makes a checkpoint, and removes the WAL. After a failed fsync, the WAL in the page cache is
 * not on the disk. A corrupt file is evidence, and must not be written to.
 *
 * Neither bun:sqlite nor node:sqlite has a setting that prevents this checkpoint. It needs an
 * exclusive lock on the file, which SQLite does not give while another connection of the process
 * reads a WAL. That connection is opened for reading only, so it makes no checkpoint itself.
 *
 * @param openReader Opens the other connection.
 */
export function closeLeavingWal(
  path: string,
  close: () => void,
  openReader: () => SqlClient & Disposable,
): void {
  let reader: (SqlClient & Disposable) | undefined;

  try {
    // Without a WAL there is nothing to move, and the reader would leave an empty one.
    if (walBytes(path) > 0) {
      reader = openReader();
      // The first read takes the shared lock, which a connection to a WAL keeps. A page that is
      // corrupt changes nothing.
      reader.all("PRAGMA application_id");
    }
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }

  close();
  reader?.[Symbol.dispose]();
}
