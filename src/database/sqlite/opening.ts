import { sleepSync } from "../../async/timers.ts";
import type { Access } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import { WAL_FILE_BYTES } from "./checkpoint.ts";
import { type Driver, type SqliteConnection, valueFrom } from "./driver.ts";
import { isFailedSync, isLocked, toFileError, withFileError } from "./errors.ts";
import { identityOf } from "./file_identity.ts";
import { isOnePage, requireFiles, requireWritableFiles } from "./files.ts";
import { clearUnsynced, isUnsynced, markUnsynced, requireUnmarked } from "./markers.ts";
import {
  applyMigrations,
  hasOurTables,
  type Migration,
  MIGRATIONS,
  missingMigrations,
} from "./migrations.ts";
import { checkOnOpening } from "./opening_check.ts";
import { databaseFile, walBytes } from "./path.ts";
import { createWalIndex } from "./wal_index.ts";

/** How long a command waits for the lock of another process, in milliseconds. */
export const BUSY_TIMEOUT_MS = 5_000;

/** How to connect. */
export interface ConnectOptions {
  /**
   * `create` creates the file or its tables if there are none; `write` and `read` need them.
   *
   * @default {"create"}
   */
  readonly access?: Access;

  /**
   * Called with the migrations that were applied, and whether that created the database.
   *
   * @default does nothing
   */
  readonly onMigrated?: (applied: readonly Migration[], isNew: boolean) => void;

  /**
   * How long to wait for the lock of another process, in milliseconds.
   *
   * @default {BUSY_TIMEOUT_MS}
   */
  readonly busyTimeoutMs?: number;

  /**
   * Whether to reset the WAL, while other writers wait. After a failed fsync it is always reset.
   *
   * @default {false}
   */
  readonly resetsWal?: boolean;

  /**
   * Called if the WAL was to be reset, and another process uses it.
   *
   * @default does nothing
   */
  readonly onWalInUse?: () => void;
}

/**
 * Opens a database file for either driver. Checks that it is a plant-store's, and unless it is only
 * read, runs {@linkcode checkOnOpening} and migrates it. Leaves a file that cannot be used as it
 * was, with its WAL.
 *
 * @throws {DatabaseError} If the file cannot be opened, is not a database, is corrupt, or belongs
 *   to another application or a newer plant-store; or if a file beside it cannot be trusted.
 */
export function openDatabase<Opened extends SqliteConnection>(
  driver: Driver<Opened>,
  path: string,
  options: ConnectOptions = {},
): Opened {
  const { access = "create" } = options;
  let connection: Opened | undefined;
  let file: string | undefined;

  try {
    file = databaseFile(path);
    if (access !== "read") requireSound(path);
    requireFiles(file, access);

    const before = identityOf(path);
    createWalIndex(file, false, driver.disableCopyOnWrite);
    connection = driver.open(path, { readonly: access === "read" });
    setUp(connection, { ...options, file, before, driver });
    return connection;
  } catch (error) {
    if (file !== undefined && isFailedSync(error)) markUnsynced(file);
    if (connection !== undefined) closeAsItWas(connection, file);
    throw toFileError("open", path, error);
  }
}

/**
 * Requires what {@linkcode openDatabase} requires of the files for creating or migrating a database,
 * and changes nothing.
 *
 * @throws {DatabaseError} If it would refuse them.
 */
export function requireMigratable(path: string): void {
  withFileError("open", path, () => {
    requireSound(path);
    requireWritableFiles(databaseFile(path));
  });
}

/** Before a file is created: nothing else says that the one that was here is corrupt. */
function requireSound(path: string): void {
  requireUnmarked(path, () => `restore a backup, or ${howToRunOn("check", databaseFile(path))}`);
}

/** Closes a connection, and leaves the file and its WAL as they are. */
function closeAsItWas(connection: SqliteConnection, file = ""): void {
  let reader: SqliteConnection | undefined;

  try {
    // The reader leaves an empty WAL where there is none. Without its WAL, a file that has just begun
    // would look like one whose WAL was lost.
    if (walBytes(file) > 0 || isOnePage(file)) {
      reader = connection.openReader();
      guardWal(reader);
    }
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }

  connection[Symbol.dispose]();
  reader?.[Symbol.dispose]();
}

/**
 * Lets a connection that only reads keep SQLite from the checkpoint that it makes when the last
 * connection closes: after a failed fsync the WAL in the page cache is not on the disk, and nothing
 * may write to a corrupt file. No setting of the drivers prevents that. The checkpoint needs an
 * exclusive lock, which SQLite does not give while another connection of the process is open. This
 * one makes none itself.
 *
 * @param reader From `openReader`. Close it last.
 */
export function guardWal(reader: SqliteConnection): void {
  // The first read takes the shared lock, which a connection to a WAL keeps, even if the page is
  // corrupt.
  reader.query("PRAGMA application_id").all();
}

/** The database file, and its identity before SQLite has opened it. */
interface OpenedFile {
  readonly driver: Pick<Driver<SqliteConnection>, "disableCopyOnWrite">;
  readonly file: string;
  readonly before: string | undefined;
}

/**
 * Prepares a connection. The order matters: nothing is written to a file that is not ours or is
 * corrupt, and no plant is compared with a WAL that is not trusted.
 */
function setUp(connection: SqliteConnection, options: ConnectOptions & OpenedFile): void {
  const { access, busyTimeoutMs = BUSY_TIMEOUT_MS, resetsWal = false, file, before } = options;

  // Wait for locks. This comes first, because each later statement may meet one.
  connection.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);

  // Refuse what is not ours before the first write: the WAL of a newer plant-store stays as it was.
  const hasTables = hasOurTables(connection);
  if (access === "read") return requireReadable(connection, hasTables);
  if (hasTables) checkOnOpening(connection);
  else if (access === "write")
    throw new DatabaseError(`${EMPTY}; if nothing was ever stored, ${howToRunOn("migrate", file)}`);
  const isUpToDate = hasTables && missingMigrations(connection).length === 0;

  // Write through a WAL, with an fsync for each commit. SQLite's own checkpoint hides a failed
  // fsync: the store makes all checkpoints.
  createWalIndex(file, true, options.driver.disableCopyOnWrite);
  beginWalMode(connection, busyTimeoutMs);
  setPragma(connection, "synchronous", "FULL", 2);
  setPragma(connection, "wal_autocheckpoint", 0);
  setPragma(connection, "journal_size_limit", WAL_FILE_BYTES);

  // Open the WAL by a first read: a backup is a file without one. From then on this connection
  // holds a lock, and a restore needs that lock to move the file. A file that was moved earlier
  // would be written to beside the WAL of the restored one.
  connection.query("PRAGMA schema_version").all();
  requireSame(connection, before);

  // Reset a WAL that is not trusted, and only then migrate.
  if (isUnsynced(file)) resetUnsyncedWal(connection, file);
  else if (resetsWal && !tryToResetWal(connection, busyTimeoutMs)) options.onWalInUse?.();
  if (!isUpToDate) {
    const applied = applyMigrations(connection);
    options.onMigrated?.(applied, applied.length === MIGRATIONS.length);
  }

  // That may have taken long, and moving a file needs no lock: the store remembers the file that is at
  // the path next.
  requireSame(connection, before);
}

/** Requires that the path still has the file that SQLite has opened. */
function requireSame({ filename }: SqliteConnection, before: string | undefined): void {
  if (identityOf(filename) !== before)
    throw new DatabaseError("it was replaced while it was opened; try again");
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

/** Requires that a file which is only read has our tables, of no newer version. */
function requireReadable(connection: SqliteConnection, hasTables: boolean): void {
  if (!hasTables) throw new DatabaseError(EMPTY);
  missingMigrations(connection);
}

const EMPTY = "it is empty: no plant-store has created its tables yet";

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
function resetUnsyncedWal(connection: SqliteConnection, file: string): void {
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
function tryToResetWal(connection: SqliteConnection, busyTimeoutMs: number): boolean {
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
