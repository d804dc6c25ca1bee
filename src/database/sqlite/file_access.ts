import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fchownSync,
  openSync,
  type Stats,
  statSync,
  writeSync,
} from "node:fs";
import { basename } from "node:path";
import { DatabaseError } from "../database.ts";
import { walBytes } from "./database_file.ts";

/**
 * Requires a file to be there. SQLite's own error is the same for a missing one and for one that may not be read.
 *
 * @throws {DatabaseError} If there is none, it is not a file, or it cannot be reached.
 */
export function requireFile(path: string): void {
  const stats = statsOf(path);
  if (!stats?.isFile()) throw new DatabaseError(stats ? "it is not a file" : "there is no such file");
}

function statsOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    // Such as a directory above it that this user may not enter.
    throw new DatabaseError(`it cannot be reached (${(error as NodeJS.ErrnoException).code})`);
  }
}

/**
 * Requires that a WAL has the file that it belongs to: SQLite removes the WAL of a file that is missing or empty, and
 * with it the plants that are nowhere else.
 *
 * @throws {DatabaseError} If the file was moved or emptied.
 */
export function requireFileOfWal(path: string): void {
  // First the WAL: who makes a database has written to the file before.
  if (walBytes(path) === 0 || (statsOf(path)?.size ?? 0) > 0) return;
  throw new DatabaseError(
    `"${basename(path)}-wal" holds plants of a file that is not there: put the file back beside it, or move it away`,
  );
}

/** Makes the file of a database where there is none, for its owner only; SQLite gives the files beside it the same mode. */
export function createDatabaseFile(path: string): void {
  try {
    closeSync(openSync(path, "ax", 0o600));
  } catch {
    // It is there, or cannot be made: that SQLite finds, too, and says it better.
  }
}

/**
 * Makes a file that is readable and writable for its owner only. Root gives it to this owner: root may run a command on a
 * server's files, as SQLite does with the WAL. Nothing that is there is followed, such as a link to a file of root's.
 *
 * @throws {Error} The system's, if there is something at the path, or it cannot be written.
 */
export function createPrivateFile(path: string, text: string, { uid, gid }: Pick<Stats, "uid" | "gid">): void {
  const file = openSync(path, "wx", 0o600);
  try {
    writeSync(file, text);
    if (process.getuid?.() === 0) fchownSync(file, uid, gid);
  } finally {
    closeSync(file);
  }
}

/**
 * Requires that this process may write to what is there of a database. Where the WAL is there already, SQLite opens for
 * reading what it may not write, and fails at the first write.
 *
 * @throws {DatabaseError} If it may not.
 */
export function requireWritable(path: string): void {
  const isReadOnly = (file: string) => existsSync(file) && !canWrite(file);
  if ([path, `${path}-wal`, `${path}-shm`].some(isReadOnly)) throw new DatabaseError(NOT_WRITABLE);
}

/** Whether this process may write to a file, or there is none. */
export function canWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch (error) {
    // The last process to close the database has removed its WAL just now.
    return (error as NodeJS.ErrnoException).code === "ENOENT";
  }
}

/** What whoever may not write is to do. */
export const NOT_WRITABLE =
  "SQLite has to be able to write to it and beside it; run this as the user who runs the server";
