// SQLite's write-ahead log: how it begins, who may not empty it, and how one that is not trusted is reset.
import { sleepSync } from "../../async/timers.ts";
import { DatabaseError } from "../database.ts";
import { WAL_FILE_BYTES } from "./checkpoint.ts";
import { type SqliteConnection, valueFrom } from "./driver.ts";
import { isFailedSync, isLocked } from "./errors.ts";
import { isOnePage } from "./files.ts";
import { clearUnsynced } from "./markers.ts";
import { walFileBytes } from "./path.ts";

/**
 * Lets a connection write through a WAL, with an fsync for each commit, and opens the WAL.
 *
 * @throws {DatabaseError} If SQLite refuses a setting.
 */
export function beginWal(connection: SqliteConnection, busyTimeoutMs: number): void {
  beginWalMode(connection, busyTimeoutMs);
  setPragma(connection, "synchronous", "FULL", 2);
  // SQLite's own checkpoint hides a failed fsync: the store makes all checkpoints.
  setPragma(connection, "wal_autocheckpoint", 0);
  setPragma(connection, "journal_size_limit", WAL_FILE_BYTES);
  // Opens the WAL by a first read, and takes the shared lock.
  connection.query("PRAGMA schema_version").all();
}

/**
 * Applies a setting, and reads it back: SQLite ignores one that it cannot apply.
 *
 * @param expected What SQLite calls the value.
 * @throws {DatabaseError} If the setting has another value afterwards.
 */
function setPragma(
  connection: SqliteConnection,
  name: string,
  value: string | number,
  expected: string | number = value,
): void {
  connection.query(`PRAGMA ${name} = ${value}`).all();
  const actual = String(valueFrom(connection, `PRAGMA ${name}`));

  if (actual !== String(expected))
    throw new DatabaseError(`it refuses ${name} = ${value} (it is ${actual})`);
}

/**
 * How long to wait before the next attempt, in milliseconds: another process creates the file with
 * a few fsyncs.
 */
const RETRY_MS = 5;

/**
 * Switches to WAL mode. SQLite does not wait for a lock to begin the first WAL: of two processes
 * that create a file together, one would fail.
 */
function beginWalMode(connection: SqliteConnection, busyTimeoutMs: number): void {
  const deadline = performance.now() + busyTimeoutMs;

  for (;;) {
    try {
      return setPragma(connection, "journal_mode", "WAL", "wal");
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
    }

    sleepSync(RETRY_MS);
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
export function resetUnsyncedWal(connection: SqliteConnection, file: string): void {
  if (!resetWal(connection)) throw new DatabaseError(IN_USE);
  clearUnsynced(file);
}

const IN_USE =
  "an earlier fsync failed, and another process is reading the WAL; try again when that process has ended";

/** How long to wait for other users of the WAL, in milliseconds: meanwhile no process can write. */
const RESET_TIMEOUT_MS = 100;

/**
 * Resets the WAL if no other process uses it. A server that was killed during an fsync leaves
 * transactions that were never synced, and a 200 could rest on them. If another process uses the
 * WAL, the checkpoint syncs it, which is enough.
 *
 * @returns False if another process uses the WAL.
 */
export function tryToResetWal(connection: SqliteConnection, busyTimeoutMs: number): boolean {
  connection.exec(`PRAGMA busy_timeout = ${RESET_TIMEOUT_MS}`);
  try {
    return resetWal(connection);
  } catch (error) {
    // Without space, for example, the server starts anyway, returns 503, and recovers by itself.
    if (isFailedSync(error)) throw error;
    return true;
  } finally {
    connection.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}

/**
 * Moves the WAL into the database, so that the next commit begins the WAL anew. Takes longer for a
 * larger WAL.
 *
 * @returns False if another process uses the WAL: then it was not reset.
 */
function resetWal(connection: SqliteConnection): boolean {
  const [[busy, pages] = []] = connection.query("PRAGMA wal_checkpoint(RESTART)").values();
  if (Number(busy) !== 0) return false;

  // Any commit will do: it replaces the header of the WAL on the disk, and with it the transactions
  // that the WAL still has.
  if (Number(pages) > 0) connection.query("PRAGMA user_version = 0").all();
  return true;
}

/**
 * Lets a connection that only reads keep SQLite from the checkpoint that it makes when the last
 * connection closes: after a failed fsync the WAL in the page cache is not on the disk, and nothing
 * may write to a corrupt file. No setting of the drivers prevents that. The checkpoint needs an
 * exclusive lock, which SQLite does not give while another connection of the process is open. A
 * connection that only reads makes no checkpoint when it closes.
 *
 * @param reader From `openReader`. Close it last.
 */
export function guardWal(reader: SqliteConnection): void {
  // The first read takes the shared lock, which a connection to a WAL keeps, even if the page is
  // corrupt.
  reader.query("PRAGMA application_id").all();
}

/** Closes a connection, and leaves the file and its WAL as they are. */
export function closeAsItWas(connection: SqliteConnection, file = ""): void {
  let reader: SqliteConnection | undefined;

  try {
    // The reader leaves an empty WAL where there is none. Without its WAL, a file that has just begun
    // would look like one whose WAL was lost.
    if (walFileBytes(file) > 0 || isOnePage(file)) {
      reader = connection.openReader();
      guardWal(reader);
    }
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }

  connection[Symbol.dispose]();
  reader?.[Symbol.dispose]();
}
