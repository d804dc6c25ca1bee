// Which file is at a path, and whether it is still the one that SQLite has open.
import { lstatSync, statSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { databaseFile, walFile, walFileBytes } from "./path.ts";

/** Why a commit that is on the disk may not be acknowledged. */
export interface Loss {
  readonly reason: string;
  /** Whether only a new process can store plants again. */
  readonly isFinal: boolean;
  /** Whether another database is at the path: SQLite would read the WAL into it. */
  readonly isReplaced?: boolean | undefined;
  /**
   * Whether only the WAL is gone: no other is in its place, and its index is still there, by which all
   * processes see each other.
   */
  readonly isOnlyWal?: boolean | undefined;
  /** Whether the file and its WAL hold all, for a new process. */
  readonly isOnDisk?: boolean | undefined;
}

/**
 * Remembers the files of a database, to look after each commit whether they are still the ones that
 * SQLite writes to: SQLite itself would go on without them.
 *
 * @param path The database, open and in WAL mode.
 * @returns A function that compares them, and returns the loss, if there is one.
 * @throws {DatabaseError} If the files cannot be found now, as in the first moments of a shared
 *   folder.
 */
export function watchFiles(path: string): () => Loss | undefined {
  const file = databaseFile(path);
  const wal = walFile(path);
  const identity = requireIdentity(path);
  const walIdentity = requireIdentity(wal);
  const index = `${file}-shm`;
  const indexIdentity = identityOf(index);

  return () => {
    const now = identityOf(path);

    // Not final: the file may come back, as after `mv` there and back, and its WAL with it. A restart meanwhile would
    // create an empty database outside production.
    if (now === undefined) return { reason: lost(path), isFinal: false };
    // SQLite never opens them again. A new process does.
    if (now !== identity) return { reason: lost(path), isFinal: true, isReplaced: true };
    // Behind a link, another process would look for the WAL elsewhere.
    if (isLink(file)) return { reason: lost(wal), isFinal: true };
    if (identityOf(wal) !== walIdentity)
      return {
        reason: lost(wal),
        isFinal: true,
        isOnlyWal: walFileBytes(path) === 0 && identityOf(index) === indexIdentity,
      };
    // Another process would make another index, by which it does not see what this one writes, and would
    // write over it.
    if (identityOf(index) !== indexIdentity)
      return { reason: lost(index), isFinal: true, isOnDisk: true };
    return undefined;
  };
}

/** The file at a path before SQLite opens it. */
export interface Opening {
  /** @throws {DatabaseError} If the path has another file by now, or none. */
  requireSameFile(): void;
  /** The same error, or that one if it is the reason: SQLite calls a file that is gone an I/O error. */
  explain(error: unknown): unknown;
}

/** Remembers which file is at a path, and looks again while SQLite opens it. */
export function openingOf(path: string): Opening {
  const identity = identityOf(path);
  const isSame = () => identity !== undefined && identityOf(path) === identity;
  const replaced = (cause?: unknown) =>
    new DatabaseError("it was replaced while it was opened; try again", { cause });

  return {
    requireSameFile() {
      if (!isSame()) throw replaced();
    },
    explain: (error) => (isSame() ? error : replaced(error)),
  };
}

/**
 * The identity of the file at this path while it is open: its device and inode, which no other file
 * gets until it is closed. A time is not part of it: a system without `statx` has no time of birth.
 *
 * @returns `undefined` if the file does not exist or cannot be reached.
 */
export function identityOf(path: string): string | undefined {
  try {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats && `${stats.dev}:${stats.ino}`;
  } catch {
    return undefined;
  }
}

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true;
}

function requireIdentity(path: string): string {
  const identity = identityOf(path);
  if (identity === undefined) throw new DatabaseError("its files are not there yet; try again");
  return identity;
}

const lost = (path: string) => `"${path}" was removed or replaced while it was open`;
