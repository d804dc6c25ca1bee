import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";

import { isSystemError, PlantStoreError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";
import { inodeOf } from "./file_identity.ts";
import { CORRUPT_SUFFIX, databaseFile, UNSYNCED_SUFFIX } from "./path.ts";
import { createPrivateFile, readTrusted } from "./trust.ts";

// What an error of SQLite means for a plant, for the store, and for the next process:
//
// | error          | SQLite's codes               | the plant    | the store     | the next process            |
// | -------------- | ---------------------------- | ------------ | ------------- | --------------------------- |
// | locked         | BUSY, LOCKED                 | not stored   | tries again   |                             |
// | no storage now | all other of `UNAVAILABLE`   | not stored   | refuses it    |                             |
// | failed fsync   | IOERR_FSYNC, IOERR_DIR_FSYNC | unknown      | ends          | `-unsynced`: resets the WAL |
// | corruption     | CORRUPT, NOTADB              | not stored   | ends          | `-corrupt`: only reads      |
// | any other      | a bug, such as wrong SQL     | not stored   | throws it on  |                             |
//
// A store that ends writes a marker beside the database, which outlives the process, and leaves the
// file and its WAL as they are.
//
// BUG: a marker that cannot be written, on a disk that is full or read-only by then, is missing. The
// next check finds corruption again; a server resets the WAL at every start; but a command that
// writes before the next server starts trusts what the failed fsync left in the page cache.

/**
 * SQLite's result codes (https://www.sqlite.org/rescode.html), which both drivers give. The lowest
 * eight bits of an extended code are its primary one.
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
  NOTADB: 26,
  READONLY_ROLLBACK: 776,
  IOERR_FSYNC: 1_034,
  IOERR_DIR_FSYNC: 1_290,
  IOERR_SHMMAP: 5_386,
} as const;

/** The primary codes that are a state of the storage, in words for a client. */
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

/**
 * Translates an error of SQLite by its code: a state of the storage becomes `storage_unavailable`;
 * anything else, such as wrong SQL, is returned unchanged.
 */
export function toPlantStoreError(error: unknown): unknown {
  const reason = UNAVAILABLE[primaryCodeOf(error)];
  return reason === undefined ? error : unavailable(reason, error);
}

/** An error for clients, with a cause for the log. */
export function unavailable(reason: string, cause: unknown): PlantStoreError {
  return new PlantStoreError("storage_unavailable", `${reason}; send the plant again later`, {
    cause,
  });
}

/**
 * Whether an fsync failed. Then the page cache differs from the disk, and a second fsync would
 * succeed without writing the lost pages.
 */
export function isFailedSync(error: unknown): boolean {
  const code = resultCodeOf(error);
  return code === CODES.IOERR_FSYNC || code === CODES.IOERR_DIR_FSYNC;
}

/** Whether another process holds the lock, which is not a failure of the storage. */
export function isLocked(error: unknown): boolean {
  if (error instanceof PlantStoreError || error instanceof DatabaseError)
    return isLocked(error.cause);
  const code = primaryCodeOf(error);
  return code === CODES.BUSY || code === CODES.LOCKED;
}

/**
 * What is corrupt, if the error means that the file is.
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

/** The primary code, from which an extended one continues. */
export function primaryCodeOf(error: unknown): number {
  return resultCodeOf(error) & 0xff;
}

/** SQLite's extended result code, as bun:sqlite or node:sqlite calls it; `NaN` for another error. */
export function resultCodeOf(error: unknown): number {
  // An `errno` of the system is another thing.
  if (!(error instanceof Error) || isSystemError(error)) return Number.NaN;
  const { errcode, errno } = error as { readonly errcode?: unknown; readonly errno?: unknown };
  return Number(errcode ?? errno);
}

/**
 * Corruption that a check of ours found, with SQLite's code for it. The message is the finding, in
 * one line.
 */
export class CorruptError extends DatabaseError {
  readonly errcode = CODES.CORRUPT;
}

/**
 * A failed fsync of ours, not of SQLite, with SQLite's code for it. The message is the system's.
 */
export class FailedSyncError extends DatabaseError {
  readonly errcode = CODES.IOERR_FSYNC;
}

/** How much of a corruption marker is read, in bytes. */
const MARKER_BYTES = 4_096;

/**
 * The marker that the file which the path has now is corrupt: a corrupt file cannot be trusted with
 * that itself.
 *
 * It names the file by its inode. Nothing inside a file distinguishes a restored backup from it: a
 * copy has the same content. The number of the device is left out, because a boot or a mount may
 * change it. If a file system gives the inode to a restored backup, that is refused until
 * `plant-store check` has found nothing.
 */
export function corruptionMarker(path: string) {
  const file = databaseFile(path);
  const inode = inodeOf(path);
  const content = () => readTrusted(file, CORRUPT_SUFFIX, MARKER_BYTES);

  return {
    /** The content of the marker, for `clear`. */
    content,

    /** The corruption that was found, in one line; `undefined` if none is known. Reads the disk. */
    finding(): string | undefined {
      try {
        // Before every call of the store: there is none, and looking for it costs least.
        if (!existsSync(file + CORRUPT_SUFFIX)) return undefined;
        const marked = JSON.parse(content() ?? "{}") as {
          readonly inode?: string;
          readonly finding?: string;
        };
        return marked.inode === inode ? marked.finding : undefined;
      } catch {
        // A crash cut it off: the next check finds the corruption again.
        return undefined;
      }
    },

    /** Marks the file if possible. Otherwise the next check finds the corruption again. */
    write(finding: string): void {
      if (inode === undefined) return;

      const line = finding.replaceAll("\n", " ").slice(0, MARKER_BYTES / 8);
      // As JSON, which an operator may read.
      const marked = { inode, finding: line, foundAt: new Date().toISOString() };
      const draft = `${file}${CORRUPT_SUFFIX}-new`;

      try {
        try {
          rmSync(draft, { force: true });
          createPrivateFile(draft, `${JSON.stringify(marked)}\n`);
          // Replaces the marker as a whole: on a full disk the old one stays.
          renameSync(draft, file + CORRUPT_SUFFIX);
        } finally {
          rmSync(draft, { force: true });
        }
      } catch {
        // The disk may be full or read-only by now.
      }
    },

    /** Removes the marker if it still has this content, and the path still has the same file. */
    clear(before: string | undefined): void {
      if (before === undefined || content() !== before || inodeOf(path) !== inode) return;
      rmSync(file + CORRUPT_SUFFIX, { force: true });
    },
  };
}

/**
 * Requires that a file is not marked as corrupt. Only a check of the whole file, or another file,
 * ends that.
 *
 * @param advice What to do about it.
 * @throws {DatabaseError} If it is marked.
 */
export function requireUnmarked(path: string, advice: string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice}`);
}

/**
 * Marks that an fsync of the database or of its WAL failed, if possible: the next process may read
 * data that exists only in the page cache, and no later fsync writes it. The marker itself needs no
 * fsync: a power loss ends the page cache as well.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function markUnsynced(file: string): void {
  try {
    writeFileSync(file + UNSYNCED_SUFFIX, "", { flag: "wx", mode: 0o600 });
  } catch {
    // It is there; or the disk that failed is full or read-only by now.
  }
}

/** Whether a file is marked by {@linkcode markUnsynced}. */
export function isUnsynced(file: string): boolean {
  return existsSync(file + UNSYNCED_SUFFIX);
}

/** Removes the mark, once the WAL was reset. */
export function clearUnsynced(file: string): void {
  rmSync(file + UNSYNCED_SUFFIX, { force: true });
}
