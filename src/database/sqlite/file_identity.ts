// Detects when the file at a path is no longer the file that SQLite has open.
import { lstatSync, statSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { databaseFile, walFileBytes } from "./path.ts";

/** The loss of a database's files or of its lock. No commit may be acknowledged after it. */
export interface Loss {
  readonly reason: string;
  /**
   * What was lost. A missing file may come back. After any other loss, only a new process can store
   * plants again.
   *
   * - `file`: the path has no file.
   * - `replaced`: the path has another file. SQLite would apply the WAL to that.
   * - `wal`: the WAL was removed, and not replaced.
   * - `files`: the WAL was replaced, or its index is gone as well.
   * - `index`: the WAL-index (`-shm`) is gone. A new process rebuilds it from the WAL.
   * - `lock`: SQLite's lock on the file.
   */
  readonly lost: "file" | "replaced" | "wal" | "files" | "index" | "lock";
}

/**
 * Remembers the identities of a database's files. SQLite goes on writing to files that were removed or
 * replaced, so the store checks them before and after each commit.
 *
 * @param path The database, open and in WAL mode.
 * @returns A function that checks the files and returns the loss; `undefined` if there is none.
 * @throws {DatabaseError} If a file is not visible yet, as can happen on a shared folder.
 */
export function watchFiles(path: string): () => Loss | undefined {
  const file = databaseFile(path);
  const wal = `${file}-wal`;
  const identity = requireIdentity(path);
  const walIdentity = requireIdentity(wal);
  const index = `${file}-shm`;
  const indexIdentity = identityOf(index);

  return () => {
    const now = identityOf(path);

    // The file and its WAL may come back, for example with a second `mv`. Meanwhile, a restart outside production would
    // create an empty database.
    if (now === undefined) return { reason: gone(path), lost: "file" };
    // SQLite never reopens a path; a new process opens the file that is there.
    if (now !== identity) return { reason: gone(path), lost: "replaced" };

    const hasIndex = identityOf(index) === indexIdentity;
    // Behind a link, another process would look for the WAL elsewhere.
    if (isLink(file)) return { reason: gone(wal), lost: "files" };
    if (identityOf(wal) !== walIdentity)
      return { reason: gone(wal), lost: hasIndex && walFileBytes(path) === 0 ? "wal" : "files" };
    // Another process would create its own index. It would not see this process's transactions in the WAL,
    // and would overwrite them.
    return hasIndex ? undefined : { reason: gone(index), lost: "index" };
  };
}

/** Detects that a file is replaced while SQLite opens it. */
interface Opening {
  /** @throws {DatabaseError} If the file was removed or replaced. */
  requireSameFile(): void;
  /**
   * Returns the error of `requireSameFile` if the file was removed or replaced, else the given error.
   * SQLite reports only an I/O error for a removed file.
   */
  explain(error: unknown): unknown;
}

/** Remembers the identity of the file at a path, before SQLite opens it. */
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
 * Returns the identity of a file: its device and inode. No other file gets the same inode while the
 * file is open. The birth time is left out, because systems without `statx` have none.
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
