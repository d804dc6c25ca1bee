import { basename } from "node:path";

import { isSystemError, PlantStoreError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";
import { databaseFile, walFileBytes } from "./path.ts";
import { storageFault } from "./storage_fault.ts";

// The consequences of a SQLite error for a plant, for the store and for the next process. `toFileError` explains it to
// the operator.
//
// | error          | SQLite's codes               | the plant    | the store     | the next process            |
// | -------------- | ---------------------------- | ------------ | ------------- | --------------------------- |
// | locked         | BUSY, LOCKED                 | not stored   | tries again   |                             |
// | no storage now | all other of `UNAVAILABLE`   | not stored   | refuses it    |                             |
// | failed fsync   | IOERR_FSYNC, IOERR_DIR_FSYNC | unknown      | ends          | `-unsynced`: resets the WAL |
// | corruption     | CORRUPT, NOTADB              | not stored   | ends          | `-corrupt`: only reads      |
// | refused data   | all of `REFUSED`             | not stored   | goes on       |                             |
// | any other      | a bug, such as wrong SQL     | not stored   | throws it on  |                             |
//
// A store that ends writes a marker beside the database, which outlives the process, and leaves the
// file and its WAL as they are.

/**
 * SQLite's result codes (https://www.sqlite.org/rescode.html), which both drivers report. The lowest eight bits of an
 * extended code are its primary code.
 */
export const CODES = {
  PERM: 3,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  IOERR: 10,
  CORRUPT: 11,
  FULL: 13,
  CANTOPEN: 14,
  TOOBIG: 18,
  CONSTRAINT: 19,
  MISMATCH: 20,
  NOTADB: 26,
  IOERR_FSYNC: 1_034,
  IOERR_DIR_FSYNC: 1_290,
  IOERR_WRITE: 778,
  IOERR_TRUNCATE: 1_546,
  IOERR_SHMOPEN: 4_618,
  IOERR_SHMSIZE: 4_874,
  IOERR_SHMMAP: 5_386,
} as const;

/** The primary codes that mean that the storage cannot be used, in words for a client. */
const UNAVAILABLE: Readonly<Record<number, string>> = {
  [CODES.PERM]: "storage refuses access",
  [CODES.BUSY]: "storage is locked by another process",
  [CODES.LOCKED]: "storage is locked by another process",
  [CODES.NOMEM]: "storage is out of memory",
  [CODES.READONLY]: "storage is read-only",
  [CODES.IOERR]: "storage has failed to read or write",
  [CODES.CORRUPT]: "storage is corrupt",
  [CODES.FULL]: "storage is full",
  [CODES.CANTOPEN]: "storage is gone",
  [CODES.NOTADB]: "storage is corrupt",
};

/** The primary codes of data that an operator's constraint, trigger or index refuses. */
const REFUSED: readonly number[] = [CODES.TOOBIG, CODES.CONSTRAINT, CODES.MISMATCH];

/**
 * Translates an error of SQLite by its code. Unusable storage becomes `storage_unavailable`, and refused data
 * `internal`. Returns any other error, such as wrong SQL, unchanged.
 */
export function toPlantStoreError(error: unknown): unknown {
  const code = primaryCodeOf(error);
  if (REFUSED.includes(code)) return new PlantStoreError("internal", undefined, { cause: error });

  const reason = UNAVAILABLE[code];
  return reason === undefined ? error : storageUnavailable(reason, error);
}

/** Returns an error for clients, with a cause for the log. */
export function storageUnavailable(reason: string, cause: unknown): PlantStoreError {
  return new PlantStoreError("storage_unavailable", `${reason}; send the plant again later`, {
    cause,
  });
}

/**
 * Reports whether SQLite could not write, or could not create a file that it needs for reading: the file system
 * is full or read-only, or the files belong to another user.
 */
function isUnwritable(error: unknown): boolean {
  return UNWRITABLE.has(primaryCodeOf(error)) || UNWRITABLE.has(resultCodeOf(error));
}

const UNWRITABLE = new Set<number>([
  CODES.PERM,
  CODES.CANTOPEN,
  CODES.READONLY,
  CODES.FULL,
  CODES.IOERR_WRITE,
  CODES.IOERR_TRUNCATE,
  CODES.IOERR_SHMOPEN,
  CODES.IOERR_SHMSIZE,
]);

/**
 * Reports whether an fsync failed. After that the page cache differs from the disk, and a second fsync
 * succeeds without writing the lost pages.
 */
export function isFailedSync(error: unknown): boolean {
  const code = resultCodeOf(error);
  return code === CODES.IOERR_FSYNC || code === CODES.IOERR_DIR_FSYNC;
}

/** Reports whether the error only means that another process holds the lock. */
export function isLocked(error: unknown): boolean {
  if (error instanceof PlantStoreError || error instanceof DatabaseError)
    return isLocked(error.cause);
  const code = primaryCodeOf(error);
  return code === CODES.BUSY || code === CODES.LOCKED;
}

/**
 * Returns what is corrupt, if the error says that the file is corrupt.
 *
 * @returns The finding in one line; `undefined` for any other error.
 */
export function corruptionIn(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const code = primaryCodeOf(error);
  return code === CODES.CORRUPT || code === CODES.NOTADB
    ? error.message
    : corruptionIn(error.cause);
}

/** Returns SQLite's primary result code. */
export function primaryCodeOf(error: unknown): number {
  return resultCodeOf(error) & 0xff;
}

/** Returns SQLite's extended result code from either driver; `NaN` for any other error. */
export function resultCodeOf(error: unknown): number {
  // The `errno` of a system error is not SQLite's.
  if (!(error instanceof Error) || isSystemError(error)) return Number.NaN;
  const { errcode, errno } = error as { readonly errcode?: unknown; readonly errno?: unknown };
  return Number(errcode ?? errno);
}

/**
 * Corruption that one of our own checks found, with SQLite's result code. The message is the finding, in
 * one line.
 */
export class CorruptError extends DatabaseError {
  readonly errcode = CODES.CORRUPT;
}

/**
 * An fsync of our own that failed, with SQLite's result code. The message is the system's.
 */
export class FailedSyncError extends DatabaseError {
  readonly errcode = CODES.IOERR_FSYNC;
}

/**
 * Turns an error of SQLite, of the system or of our own checks into one line for the operator that names
 * the database. Any other error is a bug, and is returned unchanged.
 *
 * @param action The action that failed, such as `open`.
 */
export function toFileError(action: string, path: string, error: unknown): unknown {
  const isOurs =
    error instanceof DatabaseError || isSystemError(error) || !Number.isNaN(resultCodeOf(error));
  if (!isOurs) return error;
  return new DatabaseError(
    `Cannot ${action} database "${path}": ${operatorReason(error as Error, path)}`,
    { cause: error },
  );
}

/** Runs a call, and translates its errors with {@linkcode toFileError}. */
export function withFileError<Result>(action: string, path: string, call: () => Result): Result {
  try {
    return call();
  } catch (error) {
    throw toFileError(action, path, error);
  }
}

/** Returns why SQLite or the system refused, and what to do. */
function operatorReason(error: Error, path: string): string {
  const { message } = error;
  const code = primaryCodeOf(error);

  // SQLite does not say why it cannot write. Even a reader must be able to write: the last process that
  // closed the database removed the WAL and its index, so the reader creates them.
  const fault = isSystemError(error) || isUnwritable(error) ? storageFaultAt(path) : undefined;
  if (fault !== undefined) return fault;

  const { code: systemCode } = error as NodeJS.ErrnoException;
  if (systemCode === "EACCES")
    return "this user may not enter its directory, or one above it; choose another database with --database";
  // For example because the file was just moved.
  if (isSystemError(error)) return `it cannot be reached (${systemCode})`;

  // SQLite maps the WAL-index into memory. A FUSE file system may have mmap switched off.
  if (resultCodeOf(error) === CODES.IOERR_SHMMAP) return NO_SHARED_MEMORY;

  if (isLocked(error)) return `${message} (lslocks names the process); try again`;
  if (code !== CODES.CORRUPT) return message;
  // SQLite applies a WAL to whatever file is beside it.
  const isCopied = walFileBytes(path) > 0;
  return `it is corrupt (${message})${isCopied ? foreignWal(path) : ""}`;
}

function storageFaultAt(path: string): string | undefined {
  try {
    return storageFault(databaseFile(path));
  } catch {
    return undefined;
  }
}

const NO_SHARED_MEMORY =
  "its file system cannot map shared memory, which SQLite's WAL needs; use another one, or switch mmap on (mergerfs: cache.files)";

function foreignWal(path: string): string {
  return `; if you copied it here, "${basename(path)}-wal" is of the file before: put the copy in place with plant-store restore`;
}
