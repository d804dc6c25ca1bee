// Which file is at a path, and whether it is still the one that SQLite has open.
import { lstatSync, statSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { databaseFile, walFile, walFileBytes } from "./path.ts";

/** Why a commit that is on the disk may not be acknowledged. */
export interface Loss {
  readonly reason: string;
  /**
   * What was lost. A file may come back; after any other loss only a new process can store plants
   * again:
   *
   * - `file`: no path leads to the database;
   * - `replaced`: another database is at the path, and SQLite would read the WAL into it;
   * - `wal`: the WAL is gone, and no other is in its place;
   * - `files`: the WAL, and more: another one is in its place, or its index is gone, too;
   * - `index`: the index of the WAL: a new process finds all in the file and the WAL;
   * - `lock`: SQLite's lock on the file.
   */
  readonly lost: "file" | "replaced" | "wal" | "files" | "index" | "lock";
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

    // It may come back, as after `mv` there and back, and its WAL with it. A restart meanwhile would create an empty
    // database outside production.
    if (now === undefined) return { reason: gone(path), lost: "file" };
    // SQLite never opens them again. A new process does.
    if (now !== identity) return { reason: gone(path), lost: "replaced" };

    const hasIndex = identityOf(index) === indexIdentity;
    // Behind a link, another process would look for the WAL elsewhere.
    if (isLink(file)) return { reason: gone(wal), lost: "files" };
    if (identityOf(wal) !== walIdentity)
      return { reason: gone(wal), lost: hasIndex && walFileBytes(path) === 0 ? "wal" : "files" };
    // Another process would make another index, by which it does not see what this one writes, and would
    // write over it.
    return hasIndex ? undefined : { reason: gone(index), lost: "index" };
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

const gone = (path: string) => `"${path}" was removed or replaced while it was open`;
