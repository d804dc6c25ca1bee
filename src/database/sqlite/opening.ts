import type { DatabaseAccess, OnWarning } from "../adapter.ts";
import { warnOfAdditions } from "../additions.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import type { Driver, SqliteConnection } from "./driver.ts";
import { isFailedSync, toFileError, withFileError } from "./errors.ts";
import { openingOf } from "./file_identity.ts";
import { requireFiles } from "./files.ts";
import { isUnsynced, markUnsynced } from "./markers.ts";
import {
  applyMigrations,
  hasOurTables,
  type Migration,
  MIGRATIONS,
  readLedger,
} from "./migrations.ts";
import { checkOnOpening } from "./opening_check.ts";
import { databaseFile } from "./path.ts";
import { beginWal, closeAsItWas, resetUnsyncedWal, tryToResetWal } from "./wal.ts";
import { createWalIndex } from "./wal_index.ts";

/** How long a command waits for the lock of another process, in milliseconds. */
export const BUSY_TIMEOUT_MS = 5_000;

/** How to connect. */
export interface ConnectOptions {
  /**
   * `create` creates a missing file and missing tables; `write` and `read` require both.
   *
   * @default {"create"}
   */
  readonly access?: DatabaseAccess;

  /**
   * Called with the migrations that were applied, and whether they created the database.
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
   * Whether to reset the WAL, which blocks other writers. After a failed fsync it is always reset.
   *
   * @default {false}
   */
  readonly resetsWal?: boolean;

  /**
   * Called if a later version has added tables or columns that this version ignores.
   *
   * @default does nothing
   */
  readonly onWarning?: OnWarning | undefined;

  /**
   * Called if the WAL could not be reset because another process uses it.
   *
   * @default does nothing
   */
  readonly onWalInUse?: () => void;
}

/**
 * Opens a database file with either driver, and checks that it belongs to plant-store. Unless the
 * access is `read`, runs {@linkcode checkOnOpening} and migrates the database. If the file cannot be
 * used, leaves it and its WAL unchanged.
 *
 * The order matters:
 *
 * - Never write to a file that is not ours or is corrupt.
 * - Never read a file that a restore has moved: SQLite would read it with another WAL, or with none.
 * - Never compare a plant with an untrusted WAL.
 *
 * @throws {DatabaseError} If the file cannot be opened, is not a database, is corrupt, or belongs to
 *   another application or a newer plant-store; or if a file beside it cannot be trusted.
 */
export function openDatabase<Opened extends SqliteConnection>(
  driver: Driver<Opened>,
  path: string,
  options: ConnectOptions = {},
): Opened {
  const {
    access = "create",
    busyTimeoutMs = BUSY_TIMEOUT_MS,
    resetsWal = false,
    onWarning = () => {},
  } = options;
  const file = withFileError("open", path, () => databaseFile(path));
  withFileError("open", path, () => requireFiles(file, access));
  const opening = openingOf(path);
  let connection: Opened | undefined;

  try {
    createWalIndex(file, false, driver.disableCopyOnWrite);
    connection = driver.open(path, { readonly: access === "read" });

    // First of all, because each later statement may have to wait for a lock.
    connection.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);

    // The first read opens the WAL, if there is one, and takes the shared lock, which the connection keeps.
    // From then on no restore can move the files, because it needs the exclusive lock.
    const hasTables = hasOurTables(connection);
    opening.requireSameFile();

    // Refuse what is not ours before the first write: the WAL of a newer plant-store stays as it was.
    if (!hasTables && access !== "create") throw new DatabaseError(isEmpty(file, access));
    if (hasTables && access !== "read") checkOnOpening(connection);
    const ledger = hasTables ? readLedger(connection) : undefined;
    warnOfAdditions(ledger?.additions ?? [], onWarning);
    if (access === "read") return connection;

    // A file without a WAL, such as a backup, was not locked until now: a restore could have moved it.
    createWalIndex(file, true, driver.disableCopyOnWrite);
    beginWal(connection, busyTimeoutMs);
    opening.requireSameFile();

    // Reset a WAL that is not trusted, and only then migrate.
    if (isUnsynced(file)) resetUnsyncedWal(connection, file);
    else if (resetsWal && !tryToResetWal(connection, busyTimeoutMs)) options.onWalInUse?.();
    if (ledger?.missing.length !== 0) {
      const applied = applyMigrations(connection);
      options.onMigrated?.(applied, applied.length === MIGRATIONS.length);
    }

    // The migration may have taken long, and `mv` ignores locks. The store will trust the file that is at
    // the path.
    opening.requireSameFile();
    return connection;
  } catch (error) {
    if (isFailedSync(error)) markUnsynced(file);
    if (connection !== undefined) closeAsItWas(connection, file);
    throw toFileError("open", path, opening.explain(error));
  }
}

function isEmpty(file: string, access: DatabaseAccess): string {
  const advice =
    access === "read" ? "" : `; if nothing was ever stored, ${howToRunOn("migrate", file)}`;
  return `it is empty: no plant-store has created its tables yet${advice}`;
}
