// Checks who may own a database and the files beside it: `../../TRUST.md` has the rules in a table.
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  type Stats,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

import type { DatabaseAccess } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { inShell } from "./advice.ts";
import { ownUser, SEES_PROCESS } from "./own_process.ts";
import { COMPANION_SUFFIXES, RESTORE_SUFFIX } from "./path.ts";

/**
 * Requires that no other user can replace a database's files, and that its WAL stays beside it.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If the place is not safe. The message says why, and what to do.
 */
export function requireTrustedPlace(file: string, access: DatabaseAccess): void {
  requireNotRoot(file, "it");
  requireNotRoot(dirname(file), "its directory");
  if (access !== "read") requireOwnDirectory(file);
  requireTrustedFiles(file);
  if (isMountPoint(file)) throw new DatabaseError(MOUNTED_ALONE);
}

const MOUNTED_ALONE =
  "it is mounted without its directory, and its WAL would be lost: mount the directory";

/**
 * Reports whether exactly this path is a mount point, as when a container mounts a single file. SQLite
 * would create the WAL beside it, in the container's own layer, which is removed with the container.
 */
function isMountPoint(file: string): boolean {
  // The fifth field of each line, with some characters escaped in octal: proc_pid_mountinfo(5).
  const escaped = file.replace(/[ \t\n\\]/g, (character) => `\\${octal(character)}`);
  if (!SEES_PROCESS) return false;

  try {
    const lines = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
    return lines.some((line) => line.split(" ", 5)[4] === escaped);
  } catch {
    // Not Linux, or /proc is not mounted.
    return false;
  }
}

function octal(character: string): string {
  return character.charCodeAt(0).toString(8).padStart(3, "0");
}

/**
 * Refuses to run as root on the files of another user. That user could replace a file with a symbolic
 * link, and root would write to its target.
 *
 * @param name How the message names the path.
 * @throws {DatabaseError} If this process runs as root and the path belongs to another user.
 */
export function requireNotRoot(path: string, name: string): void {
  if (ownUser() === 0) requireOwner(path, name);
}

/**
 * Requires that a file or a directory belongs to the user of this process, or does not exist.
 *
 * @param name How the message names the path.
 * @throws {DatabaseError} If it belongs to another user.
 */
export function requireOwner(path: string, name: string): void {
  const owner = statSync(path, { throwIfNoEntry: false })?.uid;
  if (owner === undefined || owner === ownUser()) return;

  throw new DatabaseError(`${name} belongs to uid ${owner}; run this as that user`);
}

/**
 * Requires that no other user can replace a database or a backup. A directory that all users can write
 * to must be sticky, as `/tmp` is, and the file must belong to this user or root. Members of the
 * directory's group are trusted.
 *
 * @param file An absolute path. The file need not exist yet.
 * @param owner Another user to trust: the owner of the database that a backup replaces.
 * @throws {DatabaseError} If another user can replace the file. The message never suggests a command
 *   that would take over a home directory or lock users out of `/tmp`.
 */
export function requireOwnDirectory(file: string, owner?: number): void {
  const user = ownUser();
  if (user === undefined) return; // Not POSIX, or Deno.

  const directory = dirname(file);
  const { uid, mode } = statSync(directory);
  if (uid !== owner && !isTrusted(uid, file))
    throw new DatabaseError(
      `its directory belongs to uid ${uid}, who can replace it: use another directory, or give that one to uid ${user}`,
    );

  const isOpenToAll = (mode & 0o002) !== 0;
  const isSticky = (mode & 0o1000) !== 0;
  const isOurs = [user, 0, owner].includes(statSync(file, { throwIfNoEntry: false })?.uid ?? user);
  if (!isOpenToAll || (isSticky && isOurs)) return;

  // In a Kubernetes pod the volume belongs to root, so the pod can only make a directory in it.
  const another = existsSync(file)
    ? "use another directory"
    : `make a directory in it: mkdir -m 700 ${inShell(join(directory, "db"))}`;
  const cure = isSticky ? another : `chmod o-w ${inShell(directory)}, or ${another}`;
  throw new DatabaseError(`other users can write to its directory, and so replace it: ${cure}`);
}

/**
 * Refuses files that another user has put beside a database:
 *
 * - a journal, which SQLite would roll back into the database;
 * - a WAL, which that user may still write to;
 * - a pipe, which blocks whoever opens it;
 * - a link, which a restore would follow.
 *
 * Such a file may also be the operator's own, after a change of the server's user.
 */
function requireTrustedFiles(file: string): void {
  for (const suffix of [...COMPANION_SUFFIXES, RESTORE_SUFFIX]) {
    const stats = lstatSync(file + suffix, { throwIfNoEntry: false });
    const fault = stats && faultOf(stats, file, suffix);
    if (fault !== undefined)
      throw new DatabaseError(`"${basename(file)}${suffix}" beside it ${fault}`);
  }
}

/** Returns why a file beside a database cannot be trusted, and what to do; `undefined` if it can. */
function faultOf(stats: Stats, file: string, suffix: string): string | undefined {
  if (suffix === RESTORE_SUFFIX ? !stats.isDirectory() : !stats.isFile())
    return `is not a ${suffix === RESTORE_SUFFIX ? "directory" : "regular file"}: find out who put it there, and move it away`;
  return isTrusted(stats.uid, file) ? undefined : foreignFault(stats, file);
}

/**
 * Describes a file beside a database that belongs to another user, and says what to do. The file may be
 * the operator's own and hold plants, so the message never tells anybody to move or delete it.
 */
export function foreignFault(stats: Stats, file: string): string {
  const owner = statSync(file, { throwIfNoEntry: false })?.uid ?? ownUser();
  return `belongs to uid ${stats.uid}, and the database to uid ${owner}; it may hold the newest plants: never move or delete it; if it is yours, give it to the owner of the database: chown -h ${owner} ${inShell(file)}-*`;
}

/** Reports whether a user is trusted: the owner of the database, the user of this process, or root. */
function isTrusted(uid: number, file: string): boolean {
  return [statSync(file, { throwIfNoEntry: false })?.uid, ownUser(), 0].includes(uid);
}

/**
 * Reads a file beside a database if it can be trusted. Never blocks or follows a link.
 *
 * @param maxBytes How many bytes to read at most.
 * @returns Its content, or an empty string if this user may not read it; `undefined` if the file is
 *   missing or cannot be trusted.
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
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EACCES") return undefined;
    const stats = lstatSync(file + suffix, { throwIfNoEntry: false });
    return stats !== undefined && faultOf(stats, file, suffix) === undefined ? "" : undefined;
  }
}
