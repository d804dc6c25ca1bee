import { SQLiteError } from "bun:sqlite";
import { DatabaseError } from "../database.ts";
import { PlantStoreError } from "../../errors.ts";

/** What SQLite's primary result codes mean to a client: https://www.sqlite.org/rescode.html */
const UNAVAILABLE: Readonly<Record<string, string>> = {
  SQLITE_BUSY: "storage is locked by another process",
  SQLITE_LOCKED: "storage is locked by another process",
  SQLITE_FULL: "storage is full",
  SQLITE_READONLY: "storage is read-only",
  SQLITE_IOERR: "storage has failed to read or write",
  SQLITE_CANTOPEN: "storage is gone",
  SQLITE_CORRUPT: "storage is damaged",
  SQLITE_NOTADB: "storage is damaged",
  SQLITE_PERM: "storage refuses access",
  SQLITE_NOMEM: "storage is out of memory",
};

/**
 * Translates what SQLite throws, by its code: a state of the storage becomes `storage_unavailable`, and anything else
 * (such as wrong SQL) comes back unchanged.
 */
export function translate(error: unknown): unknown {
  if (error instanceof DamageError) return unavailable(UNAVAILABLE["SQLITE_CORRUPT"] as string, error);
  if (!(error instanceof SQLiteError) || error.code === undefined) return error;
  // Extended codes continue the primary one: SQLITE_IOERR_FSYNC.
  const primary = error.code.split("_", 2).join("_");
  const reason = UNAVAILABLE[primary];
  if (reason === undefined) return error;
  return unavailable(reason, error);
}

function unavailable(reason: string, cause: Error): PlantStoreError {
  return new PlantStoreError("storage_unavailable", `${reason}; send the plant again later`, { cause });
}

/**
 * Whether an error means that the disk lost what it had acknowledged to the kernel: after a failed fsync the page cache
 * is no longer what the disk holds, and a second fsync would succeed without writing it.
 */
export function isFailedSync(error: unknown): boolean {
  const cause = error instanceof PlantStoreError ? error.cause : error;
  return cause instanceof SQLiteError && /^SQLITE_IOERR_(?:DIR_)?FSYNC$/.test(cause.code ?? "");
}

/** Whether an error means that another process holds the lock, which is no failure of the storage. */
export function isLocked(error: unknown): boolean {
  const cause = error instanceof PlantStoreError ? error.cause : error;
  return cause instanceof SQLiteError && /^SQLITE_(?:BUSY|LOCKED)/.test(cause.code ?? "");
}

/**
 * What is damaged, where an error means that the file is: its pages are not what SQLite wrote.
 *
 * @returns The finding in one line, or nothing for any other error.
 */
export function findingOf(error: unknown): string | undefined {
  if (error instanceof DamageError) return error.message;
  if (error instanceof SQLiteError)
    return /^SQLITE_(?:CORRUPT|NOTADB)/.test(error.code ?? "") ? error.message : undefined;
  return error instanceof Error && error.cause !== undefined ? findingOf(error.cause) : undefined;
}

/** A database that is damaged; the message is what was found, in one line. */
export class DamageError extends DatabaseError {}
