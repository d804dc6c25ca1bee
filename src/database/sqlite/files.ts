import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  realpathSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

import { sleepSync } from "../../async/timers.ts";
import type { Access } from "../adapter.ts";
import { DatabaseError } from "../database.ts";

/**
 * Resolves the symbolic links in the path of a database, which need not exist yet. SQLite follows
 * links, and names the files beside the database after the target.
 *
 * @throws {DatabaseError} If the path is a directory, or a link to a file that does not exist, or
 *   in no directory, or not UTF-8, or too long for SQLite.
 * @throws {Error} The system's, if the path cannot be resolved.
 */
export function databaseFile(path: string): string {
  // bun:sqlite ignores white space around a path.
  const file = path.trim();
  // SQLite would ignore the slash.
  if (/\/\.?$/.test(file)) throw new DatabaseError("it is not a file");

  try {
    return requireUsablePath(realpathSync.native(file));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOTDIR") throw new DatabaseError("it is not a file");
    if (code === "ELOOP") throw new DatabaseError("its symbolic links lead to each other");
    if (code !== "ENOENT") throw error;
  }

  const link = lstatSync(file, { throwIfNoEntry: false });
  if (link?.isSymbolicLink())
    throw new DatabaseError("it is a symbolic link to a file that is not there");
  // Another process has just created it.
  if (link !== undefined) return databaseFile(path);

  if (!existsSync(dirname(file))) throw new DatabaseError("there is no such directory");
  return requireUsablePath(join(realpathSync.native(dirname(file)), basename(file)));
}

/** The longest path that SQLite opens, in bytes: of its 512, it keeps eight for "-journal". */
const MAX_PATH_BYTES = 504;

/**
 * Requires that SQLite can open a path, which has no links.
 *
 * @throws {DatabaseError} If it is too long or not UTF-8.
 */
function requireUsablePath(path: string): string {
  // A string has U+FFFD for bytes that are not UTF-8, so it may be the path of another file.
  if (path.includes("\uFFFD")) throw new DatabaseError("its path is not UTF-8; move it");
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    throw new DatabaseError(`its path is longer than ${MAX_PATH_BYTES} bytes; use a shorter one`);
  return path;
}

/** The WAL of a database, beside the file itself. */
export function walFile(path: string): string {
  return `${databaseFile(path)}-wal`;
}

/** The size of the WAL of a database, in bytes; 0 if there is none or it cannot be reached. */
export function walBytes(path: string): number {
  try {
    return statSync(walFile(path), { throwIfNoEntry: false })?.size ?? 0;
  } catch {
    return 0;
  }
}

/** The suffixes of the markers, which this program writes: failure.ts has what they say. */
export const CORRUPT_SUFFIX = "-corrupt";
export const UNSYNCED_SUFFIX = "-unsynced";
const MARKERS: readonly string[] = [CORRUPT_SUFFIX, UNSYNCED_SUFFIX];

/**
 * Whether to ask the system about this process. Deno asks its user first, for all permissions:
 * there the checks that need it are left out.
 */
export const SEES_PROCESS = !("Deno" in globalThis);

/** The user of this process; `undefined` if that cannot be known. */
function ownUser(): number | undefined {
  return SEES_PROCESS ? process.getuid?.() : undefined;
}

/** The suffixes of the files that SQLite and this program keep beside a database. */
export const COMPANION_SUFFIXES = ["-wal", "-journal", "-shm", ...MARKERS];

/**
 * Requires that the files of a database can be used, before SQLite opens any. Creates the database
 * file for the access `create`.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If one cannot be used: the message names it.
 */
export function requireFiles(file: string, access: Access): void {
  requireTrustedPlace(file, access);
  requireDatabaseFile(file, access);
  if (access === "read") return;
  // Otherwise, if there is a WAL, SQLite would open the file for reading, and fail at the first
  // write.
  if (!["", "-wal", "-shm"].every((suffix) => canWrite(file + suffix)))
    throw new DatabaseError(NOT_WRITABLE);
}

/**
 * Requires that there is a database file, and no WAL of another one beside it. Creates the file for
 * the access `create`.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If not.
 */
function requireDatabaseFile(file: string, access: Access): void {
  // A server would create an empty database in the middle of a restore.
  const aside = restoreDirectory(file);
  if (!existsSync(file) && existsSync(aside)) {
    throw new DatabaseError(
      `a restore was interrupted, and its old files are in "${basename(aside)}": run plant-store restore again`,
    );
  }

  // SQLite removes the WAL of a file that is missing or empty, and with it the plants that are only
  // there. Looks at the WAL first: a process that creates a database writes to the file before.
  if (walBytes(file) > 0 && !statSync(file, { throwIfNoEntry: false })?.size) {
    throw new DatabaseError(
      `"${basename(file)}-wal" holds plants of a file that is not there: never move or delete it; put that file back beside it, or restore a backup, which keeps it`,
    );
  }

  requireWal(file);

  if (access === "create") createDatabaseFile(file);
  const stats = statSync(file, { throwIfNoEntry: false });
  if (!stats?.isFile())
    throw new DatabaseError(
      stats ? "it is not a file" : "there is no such file; choose another with --database",
    );
}

/**
 * Requires that the WAL of a file is there if all that was stored can only be in the WAL. SQLite
 * would take the file for an empty database.
 *
 * @throws {DatabaseError} If it is missing.
 */
function requireWal(file: string): void {
  // Another process may be creating the database at this moment: the WAL comes next.
  for (let attempt = 0; !existsSync(`${file}-wal`) && isEmptyInWalMode(file); attempt++) {
    if (attempt === WAL_ATTEMPTS) throw new DatabaseError(walIsMissing(basename(file)));
    sleepSync(WAL_PAUSE_MS);
  }
}

const WAL_ATTEMPTS = 50;
const WAL_PAUSE_MS = 10;

function walIsMissing(name: string): string {
  return `its WAL is missing, and with it all that was stored: put "${name}-wal" back beside it, or restore a backup; if nothing was ever stored, move "${name}" away`;
}

/** A page as SQLite makes it: with our tables a file has several. */
const PAGE_BYTES = 4_096;
/** With that page size, in WAL mode: https://www.sqlite.org/fileformat2.html#the_database_header */
const HEADER = "SQLite format 3\0\x10\0\x02\x02";

/** Whether a file has begun, and has no tables of ours outside of its WAL. */
export function isOnePage(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.size === PAGE_BYTES;
}

/**
 * Reads a file whose WAL is missing, which no process of ours can have open: closing it drops the
 * locks of this process.
 */
function isEmptyInWalMode(file: string): boolean {
  return (
    isOnePage(file) &&
    // The first write was interrupted, and SQLite undoes it.
    !existsSync(`${file}-journal`) &&
    readTrusted(file, "", HEADER.length) === HEADER
  );
}

/**
 * Requires a place for a database where no other user can replace its files, and where the WAL
 * stays beside the database.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If the place is not safe. The message says why, and what to do.
 */
export function requireTrustedPlace(file: string, access: Access): void {
  requireNotRoot(file, "it");
  requireNotRoot(dirname(file), "its directory");
  if (access !== "read") requireOwnDirectory(file);
  requireTrustedFiles(file);
  if (isMountPoint(file)) throw new DatabaseError(MOUNTED_ALONE);
}

const MOUNTED_ALONE =
  "it is mounted without its directory, and its WAL would be lost: mount the directory";

/**
 * Whether something is mounted at exactly this path, as a container mounts one file. SQLite puts
 * the WAL beside the path, into what is gone with the container.
 */
function isMountPoint(file: string): boolean {
  // The fifth field of a line, with three octal digits for some characters: proc_pid_mountinfo(5).
  const escaped = file.replace(/[ \t\n\\]/g, (character) => `\\${octal(character)}`);
  if (!SEES_PROCESS) return false;

  try {
    const lines = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
    return lines.some((line) => line.split(" ", 5)[4] === escaped);
  } catch {
    // Not Linux's, or a system without /proc.
    return false;
  }
}

function octal(character: string): string {
  return character.charCodeAt(0).toString(8).padStart(3, "0");
}

/**
 * Refuses to run as root on the files of another user. That user could replace a file by a link,
 * and root would write to the target of the link.
 *
 * @param name What a message calls it.
 * @throws {DatabaseError} If this process is root's, and the path another user's.
 */
export function requireNotRoot(path: string, name: string): void {
  if (ownUser() === 0) requireOwner(path, name);
}

/**
 * Requires that a file or a directory belongs to the user of this process, or does not exist.
 *
 * @param name What a message calls it.
 * @throws {DatabaseError} If it is another user's.
 */
export function requireOwner(path: string, name: string): void {
  const owner = statSync(path, { throwIfNoEntry: false })?.uid;
  if (owner === undefined || owner === ownUser()) return;

  throw new DatabaseError(
    `${name} belongs to uid ${owner}; run this as that user: runuser -u USER -- plant-store …`,
  );
}

/**
 * Requires that no other user can replace the files of a database: others can write to its
 * directory only if it is sticky, as `/tmp` is, and the file is this user's. Members of the
 * directory's group are trusted.
 */
function requireOwnDirectory(file: string): void {
  const user = ownUser();
  if (user === undefined) return; // Not POSIX, or Deno.

  const directory = dirname(file);
  const { uid, mode } = statSync(directory);
  const isOpenToAll = (mode & 0o002) !== 0;
  const isSticky = (mode & 0o1000) !== 0;
  const isOurs = (statSync(file, { throwIfNoEntry: false })?.uid ?? user) === user;
  if (isTrusted(uid, file) && (!isOpenToAll || (isSticky && isOurs))) return;

  throw new DatabaseError(
    `other users can write to its directory, and so replace it: chown ${user} "${directory}" && chmod o-w "${directory}", or use another directory`,
  );
}

/**
 * Refuses what another user has put beside a database:
 *
 * - a journal, which SQLite would roll back into it;
 * - a WAL, which that user may still write to;
 * - a pipe, which blocks whoever opens it;
 * - a link, which a restore would follow.
 *
 * It may be the operator's own, after a change of the server's user. So no message tells anybody to
 * move or delete what can hold plants.
 */
function requireTrustedFiles(file: string): void {
  for (const suffix of [...COMPANION_SUFFIXES, RESTORE_SUFFIX]) {
    const stats = lstatSync(file + suffix, { throwIfNoEntry: false });
    const fault = stats && faultOf(stats, file, suffix);
    if (fault !== undefined)
      throw new DatabaseError(`"${basename(file)}${suffix}" beside it ${fault}`);
  }
}

/** Why what is beside a database cannot be trusted, and what to do; `undefined` if it can. */
function faultOf(stats: Stats, file: string, suffix: string): string | undefined {
  const moveAway = "find out who put it there, and move it away";
  if (suffix === RESTORE_SUFFIX ? !stats.isDirectory() : !stats.isFile())
    return `is not a ${suffix === RESTORE_SUFFIX ? "directory" : "regular file"}: ${moveAway}`;
  if (isTrusted(stats.uid, file)) return undefined;

  const owner = statSync(file, { throwIfNoEntry: false })?.uid ?? ownUser();
  const whose = `belongs to uid ${stats.uid}, and the database to uid ${owner}`;
  if (MARKERS.includes(suffix)) return `${whose}: ${moveAway}`;

  const holdsPlants = suffix !== "-shm" && stats.size > 0;
  const keep = holdsPlants ? "it holds the newest plants: never move or delete it; " : "";
  return `${whose}; ${keep}if it is yours, give it to the owner of the database: chown -h ${owner} "${file}"-*`;
}

/**
 * Whether a user may own what is beside a database: its own owner, who runs this process, or root.
 */
function isTrusted(uid: number, file: string): boolean {
  return [statSync(file, { throwIfNoEntry: false })?.uid, ownUser(), 0].includes(uid);
}

/**
 * Reads a file beside a database if it can be trusted. Never blocks, and follows no link.
 *
 * @param maxBytes How much to read.
 * @returns Its content; `undefined` if the file is missing, cannot be read or cannot be trusted.
 */
export function readTrusted(file: string, suffix: string, maxBytes: number): string | undefined {
  try {
    const descriptor = openSync(
      file + suffix,
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    );

    try {
      if (faultOf(fstatSync(descriptor), file, suffix) !== undefined) return undefined;
      const bytes = Buffer.alloc(maxBytes);
      return bytes.toString("utf8", 0, readSync(descriptor, bytes));
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return undefined;
  }
}

/**
 * Looks for what can cost plants although the database can be used.
 *
 * @returns Warnings for the operator, if there are any.
 */
export function warningsOf(path: string): readonly string[] {
  return statSync(databaseFile(path)).nlink > 1 ? [HARD_LINKS] : [];
}

const HARD_LINKS =
  "The database file has several hard links, and SQLite keeps a WAL for each name: use one name, and remove the others";

const RESTORE_SUFFIX = "-replacing";

/** The directory that holds the old files during a restore, which renames it at its end. */
export function restoreDirectory(file: string): string {
  return file + RESTORE_SUFFIX;
}

/** Accessible to its owner only. SQLite gives the files beside it the same mode. */
function createDatabaseFile(file: string): void {
  try {
    createPrivateFile(file, "");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM" || code === "EROFS")
      throw new DatabaseError(NOT_WRITABLE);
    if (code !== "EEXIST") throw error;
  }
}

/**
 * Creates a file that only its owner may read and write. Follows no link.
 *
 * @throws {Error} The system's, if the path exists or cannot be written.
 */
export function createPrivateFile(path: string, text: string): void {
  writeFileSync(path, text, { flag: "wx", mode: 0o600 });
}

/** Whether this process may write to a file, or the file does not exist. */
export function canWrite(path: string): boolean {
  if (!SEES_PROCESS) return true;

  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT";
  }
}

/** Advice about files without write permission. */
export const NOT_WRITABLE =
  "SQLite must be able to write to the file and to its directory; run this as the user who runs the server";
