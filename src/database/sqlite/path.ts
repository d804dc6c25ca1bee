// Where a database is: its path as it was given, the file behind links, and the names of what is beside it.
import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  realpathSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

import { DatabaseError } from "../database.ts";

/**
 * `file:PATH`, `file:///PATH` (RFC 8089), or a bare path. A bare text with a colon or an at sign may
 * be a mistyped URL with a password.
 */
const FILE = /^(?:file:(?:\/\/(?=\/))?(?=[^?#]+$)|(?=[^:@?#]+$))(.+)$/s;

/**
 * Extracts the path from `file:PATH`, a file URL or a bare path, without white space around it, which
 * bun:sqlite ignores.
 *
 * @returns `undefined` if it names none: a database in memory would lose every plant, two
 *   slashes name a host, and `://` is in a URL, which may have a password.
 */
export function sqlitePath(text: string): string | undefined {
  const path = FILE.exec(text)?.[1]?.trim();
  return !path || /^\/\/|:\/\/|^:memory:$/.test(path) ? undefined : path;
}

/**
 * Resolves the symbolic links in the path of a database, which need not exist yet. SQLite follows
 * links, and names the files beside the database after the target.
 *
 * @param path Without white space around it, as from {@linkcode sqlitePath}.
 * @throws {DatabaseError} If the path is a directory, or a link to a file that does not exist, or
 *   in no directory.
 * @throws {Error} The system's, if the path cannot be resolved.
 */
export function databaseFile(path: string): string {
  // SQLite would ignore the slash.
  if (/\/\.?$/.test(path)) throw new DatabaseError("it is not a file");

  try {
    // Bun opens what it resolves. On macOS, closing the database would drop SQLite's locks on it.
    if (lstatSync(path).isSymbolicLink()) return realpathSync.native(path);
    return join(realpathSync.native(dirname(path)), basename(path));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOTDIR") throw new DatabaseError("it is not a file");
    if (code === "ELOOP") throw new DatabaseError("its symbolic links lead to each other");
    if (code !== "ENOENT") throw error;
  }

  const link = lstatSync(path, { throwIfNoEntry: false });
  if (link?.isSymbolicLink())
    throw new DatabaseError("it is a symbolic link to a file that is not there");
  // Another process has just created it.
  if (link !== undefined) return databaseFile(path);

  if (!existsSync(dirname(path))) throw new DatabaseError("there is no such directory");
  return join(realpathSync.native(dirname(path)), basename(path));
}

/**
 * Makes the directory of a file if only that one is missing: for this user alone, since all users may
 * write to a volume that a container gets. Leaves to whoever uses the file to say why it could not.
 */
export function makeDirectory(path: string): void {
  const directory = dirname(path);
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch {
    return;
  }

  // A power loss must not take the directory of what is fsynced in it.
  syncDirectory(dirname(directory));
}

/** Fsyncs a directory, so that a power loss does not take the names of its files. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, "r");
  fsyncSync(directory);
  closeSync(directory);
}

/** The WAL of a database, beside the file itself. */
export function walFile(path: string): string {
  return `${databaseFile(path)}-wal`;
}

/** The size of the file of the WAL, in bytes; 0 if there is none or it cannot be reached. */
export function walFileBytes(path: string): number {
  try {
    return statSync(walFile(path), { throwIfNoEntry: false })?.size ?? 0;
  } catch {
    return 0;
  }
}

/** The suffix of the marker of a corrupt file: `markers.ts` writes and reads both markers. */
export const CORRUPT_SUFFIX = "-corrupt";
/** The suffix of the marker of a failed fsync. */
export const UNSYNCED_SUFFIX = "-unsynced";

/** The suffixes of the files that SQLite and this program keep beside a database. */
export const COMPANION_SUFFIXES = ["-wal", "-journal", "-shm", CORRUPT_SUFFIX, UNSYNCED_SUFFIX];

/** The suffix of {@linkcode restoreDirectory}. */
export const RESTORE_SUFFIX = "-replacing";

/** The directory that holds the old files during a restore, which renames it at its end. */
export function restoreDirectory(file: string): string {
  return file + RESTORE_SUFFIX;
}
