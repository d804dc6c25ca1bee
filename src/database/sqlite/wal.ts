import type { Connection } from "./driver.ts";
import { walBytes } from "./files.ts";

/**
 * Moves the WAL into the database, so that the next commit begins the WAL anew. Takes longer for a
 * larger WAL.
 *
 * @returns False if another process uses the WAL: then it was not reset.
 */
export function resetWal(connection: Connection): boolean {
  const [[busy, pages] = []] = connection.query("PRAGMA wal_checkpoint(RESTART)").values();
  if (Number(busy) !== 0) return false;

  // Any commit will do: it replaces the header of the WAL on the disk, and with it the transactions
  // that the WAL still has.
  if (Number(pages) > 0) connection.query("PRAGMA user_version = 0").all();
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
 * @param evenEmpty Whether to leave an empty WAL, too, or one that is no longer at the path. SQLite
 *   would move what is in that one over what other processes have stored since.
 */
export function closeLeavingWal(connection: Connection, evenEmpty = false): void {
  let reader: Connection | undefined;

  try {
    // The reader leaves an empty WAL where there is none.
    if (evenEmpty || walBytes(connection.filename) > 0) {
      reader = connection.openReader();
      // The first read takes the shared lock, which a connection to a WAL keeps. A page that is
      // corrupt changes nothing.
      reader.query("PRAGMA application_id").all();
    }
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }

  connection[Symbol.dispose]();
  reader?.[Symbol.dispose]();
}
