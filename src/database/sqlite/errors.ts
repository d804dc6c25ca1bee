// What an error means for the operator, in one line that names the database. `failure.ts` has what it means for a
// plant and for the store.
import { basename } from "node:path";

import { isSystemError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";
import { CODES, isLocked, isUnwritable, primaryCodeOf, resultCodeOf } from "./failure.ts";
import { lockHolders } from "./lock_holders.ts";
import { databaseFile, walBytes } from "./path.ts";
import { closedDirectoryFault, storageFault } from "./storage_fault.ts";

/**
 * Turns an error of SQLite, of the system or of our own checks into one line for the operator,
 * which names the database. Any other error is a bug, and is returned unchanged.
 *
 * @param action What failed, such as `open`.
 */
export function toDatabaseError(action: string, path: string, error: unknown): unknown {
  const isOurs =
    error instanceof DatabaseError || isSystemError(error) || !Number.isNaN(resultCodeOf(error));
  if (!isOurs) return error;
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
  const code = primaryCodeOf(error);

  // SQLite does not say why it cannot write. Even a reader must be able to create the WAL and its
  // index, which the last process that closed the database removed.
  const fault = isSystemError(error) || isUnwritable(error) ? storageFaultAt(path) : undefined;
  if (fault !== undefined) return fault;

  // For example because the file was just moved.
  if (isSystemError(error))
    return `it cannot be reached (${(error as NodeJS.ErrnoException).code})`;

  // The writer was killed before the file had a WAL:
  // https://www.sqlite.org/lockingv3.html#hot_journals
  if (resultCodeOf(error) === CODES.READONLY_ROLLBACK) return INTERRUPTED;

  // SQLite maps the index of the WAL. A FUSE file system may have that switched off.
  if (resultCodeOf(error) === CODES.IOERR_SHMMAP) return NO_SHARED_MEMORY;

  const holders = isLocked(error) ? lockHolders(path) : undefined;
  if (holders !== undefined) return `${message}: ${holders}`;

  if (code !== CODES.CORRUPT) return message;
  // SQLite reads a WAL into whatever file is beside it.
  const isCopied = walBytes(path) > 0;
  return `it is corrupt (${message})${isCopied ? foreignWal(path) : ""}`;
}

function storageFaultAt(path: string): string | undefined {
  try {
    return storageFault(databaseFile(path));
  } catch {
    return closedDirectoryFault(path);
  }
}

const NO_SHARED_MEMORY =
  "its file system cannot map shared memory, which SQLite's WAL needs; use another one, or switch mmap on (mergerfs: cache.files)";

function foreignWal(path: string): string {
  return `; if you copied it here, "${basename(path)}-wal" is of the file before: put the copy in place with plant-store restore`;
}

const INTERRUPTED =
  "a write to it was interrupted, and only a process that writes can undo that: start a server, or list its tokens";
