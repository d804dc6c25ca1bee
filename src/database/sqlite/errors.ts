import { SQLiteError } from "bun:sqlite";
import { existsSync } from "node:fs";
import { dirname } from "node:path";

import { isSystemError, PlantStoreError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";
import { canWrite, NOT_WRITABLE } from "./files.ts";

/** SQLite's primary result codes (https://www.sqlite.org/rescode.html) in words for a client. */
const UNAVAILABLE: Readonly<Record<string, string>> = {
  SQLITE_BUSY: "storage is locked by another process",
  SQLITE_LOCKED: "storage is locked by another process",
  SQLITE_FULL: "storage is full",
  SQLITE_READONLY: "storage is read-only",
  SQLITE_IOERR: "storage has failed to read or write",
  SQLITE_CANTOPEN: "storage is gone",
  SQLITE_CORRUPT: "storage is corrupt",
  SQLITE_NOTADB: "storage is corrupt",
  SQLITE_PERM: "storage refuses access",
  SQLITE_NOMEM: "storage is out of memory",
};

/**
 * Translates an error of SQLite by its code: a state of the storage becomes `storage_unavailable`;
 * anything else, such as wrong SQL, is returned unchanged.
 */
export function toPlantStoreError(error: unknown): unknown {
  // Extended codes continue the primary one: SQLITE_IOERR_FSYNC.
  const reason = UNAVAILABLE[resultCodeOf(error).split("_", 2).join("_")];
  if (reason === undefined) return error;
  return new PlantStoreError("storage_unavailable", `${reason}; send the plant again later`, {
    cause: error,
  });
}

/**
 * Turns an error of SQLite, of the system or of our own checks into one line for the operator,
 * which names the database. Any other error is a bug, and is returned unchanged.
 *
 * @param action What failed, such as `open`.
 */
export function toDatabaseError(action: string, path: string, error: unknown): unknown {
  if (!(error instanceof DatabaseError || error instanceof SQLiteError || isSystemError(error)))
    return error;
  return new DatabaseError(
    `Cannot ${action} database "${path}": ${operatorReason(error as Error, path)}`,
    { cause: error },
  );
}

/** Runs a call, and translates what it throws as {@linkcode toDatabaseError} does. */
export function withDatabaseError<Result>(
  action: string,
  path: string,
  call: () => Result,
): Result {
  try {
    return call();
  } catch (error) {
    throw toDatabaseError(action, path, error);
  }
}

/** Why SQLite or the system refused, in words that say what to do. */
function operatorReason(error: Error, path: string): string {
  const { message } = error;
  const code = resultCodeOf(error);

  // For example because the file was just moved.
  if (isSystemError(error)) return `it cannot be reached (${code})`;

  // On a read-only file system SQLite cannot create the WAL, and does not say so.
  if (code === "SQLITE_CANTOPEN" && existsSync(path))
    return canWrite(dirname(path)) ? message : NOT_WRITABLE;

  // The writer was killed before the file had a WAL:
  // https://www.sqlite.org/lockingv3.html#hot_journals
  if (code === "SQLITE_READONLY_ROLLBACK") return INTERRUPTED;

  // Even a reader must be able to create the WAL, which the last process that closed the database
  // removed.
  if (code.startsWith("SQLITE_READONLY")) return NOT_WRITABLE;

  return code.startsWith("SQLITE_CORRUPT") ? `it is corrupt (${message})` : message;
}

const INTERRUPTED =
  "a write to it was interrupted, and only a process that writes can undo that: start a server, or list its tokens";

/**
 * Whether an fsync failed. Then the page cache differs from the disk, and a second fsync would
 * succeed without writing the lost pages.
 */
export function isFailedSync(error: unknown): boolean {
  return /^SQLITE_IOERR_(?:DIR_)?FSYNC$/.test(resultCodeOf(error));
}

/** Whether another process holds the lock, which is not a failure of the storage. */
export function isLocked(error: unknown): boolean {
  return /^SQLITE_(?:BUSY|LOCKED)/.test(
    resultCodeOf(error instanceof PlantStoreError ? error.cause : error),
  );
}

/**
 * What is corrupt, if the error means that the file is.
 *
 * @returns The finding in one line; `undefined` for any other error.
 */
export function corruptionIn(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return /^SQLITE_(?:CORRUPT|NOTADB)/.test(resultCodeOf(error))
    ? error.message
    : corruptionIn(error.cause);
}

/** SQLite's result code, or that of the system. */
function resultCodeOf(error: unknown): string {
  return String((error as { readonly code?: unknown } | undefined)?.code);
}

/**
 * We found a database to be corrupt, with the code that SQLite has for it. The message is the
 * finding, in one line.
 */
export class CorruptError extends DatabaseError {
  readonly code = "SQLITE_CORRUPT";
}

/**
 * An fsync of ours failed, not one of SQLite's, with the code that SQLite has for it. The message
 * is the system's.
 */
export class FailedSyncError extends DatabaseError {
  readonly code = "SQLITE_IOERR_FSYNC";
}
