// Who may own a database and what is beside it: `../../TRUST.md` has the rules in a table.
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
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

import type { DatabaseAccess } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { inShell, runAs } from "./advice.ts";
import { ownUser, SEES_PROCESS } from "./own_process.ts";
import { COMPANION_SUFFIXES, RESTORE_SUFFIX } from "./path.ts";

/**
 * Requires a place for a database where no other user can replace its files, and where the WAL
 * stays beside the database.
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

  throw new DatabaseError(`${name} belongs to uid ${owner}; ${runAs(owner)}`);
}

/**
 * Requires that no other user can replace a database, a backup included: others can write to its
 * directory only if it is sticky, as `/tmp` is, and the file is this user's or root's. Members of the
 * directory's group are trusted.
 *
 * @param file An absolute path, of a file that need not exist yet.
 * @param owner A user who may own the directory: that of the database which a backup replaces.
 * @throws {DatabaseError} If another user can replace it. The message has no command that would take
 *   somebody's home, or close `/tmp`.
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

  // A pod of Kubernetes can only make one: a volume is root's.
  const another = existsSync(file)
    ? "use another directory"
    : `make a directory in it: mkdir -m 700 ${inShell(join(directory, "db"))}`;
  const cure = isSticky ? another : `chmod o-w ${inShell(directory)}, or ${another}`;
  throw new DatabaseError(`other users can write to its directory, and so replace it: ${cure}`);
}

/**
 * Refuses what another user has put beside a database:
 *
 * - a journal, which SQLite would roll back into it;
 * - a WAL, which that user may still write to;
 * - a pipe, which blocks whoever opens it;
 * - a link, which a restore would follow.
 *
 * It may be the operator's own, after a change of the server's user.
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
  if (suffix === RESTORE_SUFFIX ? !stats.isDirectory() : !stats.isFile())
    return `is not a ${suffix === RESTORE_SUFFIX ? "directory" : "regular file"}: find out who put it there, and move it away`;
  return isTrusted(stats.uid, file) ? undefined : foreignFault(stats, file);
}

/**
 * What a file beside a database is that belongs to another user, and what to do. It may be the
 * operator's own, and hold plants: so the message never tells anybody to move or delete it.
 */
export function foreignFault(stats: Stats, file: string): string {
  const owner = statSync(file, { throwIfNoEntry: false })?.uid ?? ownUser();
  return `belongs to uid ${stats.uid}, and the database to uid ${owner}; it may hold the newest plants: never move or delete it; if it is yours, give it to the owner of the database: chown -h ${owner} ${inShell(file)}-*`;
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
 * @returns Its content; empty if this user may not read it; `undefined` if the file is missing or
 *   cannot be trusted.
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

/**
 * Creates a file that only its owner may read and write. Follows no link.
 *
 * @throws {Error} The system's, if the path exists or cannot be written.
 */
export function createPrivateFile(path: string, text: string): void {
  writeFileSync(path, text, { flag: "wx", mode: 0o600 });
}
