// The path of a database, the file behind its links, and the names of the files beside it.
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
 * @returns `undefined` if the text is not the path of a file: a database in memory would lose every
 *   plant, two slashes name a host, and a URL may contain a password.
 */
export function sqlitePath(text: string): string | undefined {
  const path = FILE.exec(text)?.[1]?.trim();
  return !path || /^\/\/|:\/\/|^:memory:$/.test(path) ? undefined : path;
}

/**
 * Resolves the symbolic links in the path of a database, which need not exist yet. SQLite follows links,
 * and puts the WAL beside the target.
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
    // Bun opens a path that it resolves. On macOS, closing a database drops SQLite's locks on it.
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
 * Creates the parent directory of a file, but no directory above. Only this user may access it, because
 * all users may be able to write to a container's volume. Ignores errors: opening the file reports them.
 */
export function makeDirectory(path: string): void {
  const directory = dirname(path);
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch {
    return;
  }

  // The directory must survive a power loss, like the files that are fsynced in it.
  syncDirectory(dirname(directory));
}

/** Fsyncs a directory, so that its entries survive a power loss. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, "r");
  fsyncSync(directory);
  closeSync(directory);
}

/** Returns the size of the WAL file, in bytes; 0 if it does not exist or cannot be reached. */
export function walFileBytes(path: string): number {
  try {
    return statSync(`${databaseFile(path)}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  } catch {
    return 0;
  }
}

/** The suffix of the corruption marker. `markers.ts` writes and reads both markers. */
export const CORRUPT_SUFFIX = "-corrupt";
/** The suffix of the marker of a failed fsync. */
export const UNSYNCED_SUFFIX = "-unsynced";

/** The suffixes of the files that SQLite and this program keep beside a database. */
export const COMPANION_SUFFIXES = ["-wal", "-journal", "-shm", CORRUPT_SUFFIX, UNSYNCED_SUFFIX];

/** The suffix of the directory for the old files during a restore, which renames it at the end. */
export const RESTORE_SUFFIX = "-replacing";
