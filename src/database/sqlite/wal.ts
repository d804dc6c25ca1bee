// SQLite's write-ahead log: switching to it, resetting one that cannot be trusted, and preventing
// SQLite's own checkpoint.
import { sleepSync } from "../../async/timers.ts";
import { DatabaseError } from "../database.ts";
import { WAL_FILE_BYTES } from "./checkpoint.ts";
import { type SqliteConnection, valueFrom } from "./driver.ts";
import { isFailedSync, isLocked } from "./errors.ts";
import { isOnePage } from "./files.ts";
import { clearUnsynced } from "./markers.ts";
import { walFileBytes } from "./path.ts";

/**
 * Switches a connection to WAL mode, with an fsync for each commit, and opens the WAL.
 *
 * @throws {DatabaseError} If SQLite refuses a setting.
 */
export function beginWal(connection: SqliteConnection, busyTimeoutMs: number): void {
  beginWalMode(connection, busyTimeoutMs);
  setPragma(connection, "synchronous", "FULL", 2);
  // SQLite's own checkpoint hides a failed fsync, so the store runs all checkpoints itself.
  setPragma(connection, "wal_autocheckpoint", 0);
  setPragma(connection, "journal_size_limit", WAL_FILE_BYTES);
  // The first read opens the WAL and takes the shared lock.
  connection.query("PRAGMA schema_version").all();
}

/**
 * Sets a pragma, and reads it back: SQLite silently ignores a value that it cannot apply.
 *
 * @param expected The value as SQLite reports it.
 * @throws {DatabaseError} If the pragma has another value afterwards.
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
    throw new DatabaseError(`SQLite cannot set ${name} to ${value}: it stays ${actual}`);
}

/** The pause between two attempts, in milliseconds: creating a file takes a few fsyncs. */
const RETRY_MS = 5;

/**
 * Switches to WAL mode, and retries while the file is locked. SQLite ignores its busy timeout here: of
 * two processes that create a file at the same time, one would fail.
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
 * Resets the WAL after a failed fsync. The kernel marks the pages of that fsync as clean, so no later
 * fsync writes them to the disk. SQLite would still read their transactions from the page cache, and
 * acknowledge plants that are not on the disk.
 *
 * @throws {DatabaseError} If another process uses the WAL, even only to read: it may have read such
 *   transactions.
 */
export function resetUnsyncedWal(connection: SqliteConnection, file: string): void {
  if (!resetWal(connection)) throw new DatabaseError(IN_USE);
  clearUnsynced(file);
}

const IN_USE =
  "an earlier fsync failed, and another process is reading the WAL; try again when that process has ended";

/** How long to wait for other users of the WAL, in milliseconds. No process can write meanwhile. */
const RESET_TIMEOUT_MS = 100;

/**
 * Resets the WAL if no other process uses it. A server that was killed during an fsync leaves unsynced
 * transactions, and this server could acknowledge their plants. If another process uses the WAL, the
 * checkpoint fsyncs it, which is enough.
 *
 * @returns False if another process uses the WAL.
 */
export function tryToResetWal(connection: SqliteConnection, busyTimeoutMs: number): boolean {
  connection.exec(`PRAGMA busy_timeout = ${RESET_TIMEOUT_MS}`);
  try {
    return resetWal(connection);
  } catch (error) {
    // On a full disk, for example, the server starts anyway, returns 503, and recovers by itself.
    if (isFailedSync(error)) throw error;
    return true;
  } finally {
    connection.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}

/**
 * Moves the WAL into the database file, and restarts the WAL. The time grows with the size of the WAL.
 *
 * @returns False if another process uses the WAL, which was therefore not reset.
 */
function resetWal(connection: SqliteConnection): boolean {
  const [[busy, pages] = []] = connection.query("PRAGMA wal_checkpoint(RESTART)").values();
  if (Number(busy) !== 0) return false;

  // Any commit will do: it writes a new WAL header, which invalidates the old transactions.
  if (Number(pages) > 0) connection.query("PRAGMA user_version = 0").all();
  return true;
}

/**
 * Prevents SQLite's checkpoint on the last close, with a read-only connection that is closed last. After
 * a failed fsync the page cache differs from the disk, and nothing may write to a corrupt file.
 *
 * The drivers have no setting for this. The checkpoint needs an exclusive lock, which SQLite does not
 * get while another connection of the process is open. A read-only connection runs no checkpoint when
 * it closes.
 *
 * @param reader From `openReader`. Close it last.
 */
export function guardWal(reader: SqliteConnection): void {
  // The first read takes the shared lock, even if the page is corrupt. In WAL mode a connection keeps it.
  reader.query("PRAGMA application_id").all();
}

/** Closes a connection without a checkpoint: leaves the file and its WAL unchanged. */
export function closeAsItWas(connection: SqliteConnection, file: string): void {
  let reader: SqliteConnection | undefined;

  try {
    // Skip the reader if there is no WAL: it would create an empty one. But a file of one page needs a
    // WAL: without one it would look like a database whose WAL was lost.
    if (walFileBytes(file) > 0 || isOnePage(file)) {
      reader = connection.openReader();
      guardWal(reader);
    }
  } catch {
    // The file is gone, or the process is out of descriptors: close without a guard.
  }

  connection[Symbol.dispose]();
  reader?.[Symbol.dispose]();
}
