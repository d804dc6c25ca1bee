import { closeSync, openSync, readdirSync, readSync, statSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { SEES_PROCESS, walFile } from "./files.ts";

/** Why a commit that is on the disk may not be acknowledged. */
export interface Loss {
  readonly reason: string;
  /** Whether only a new process can store plants again. */
  readonly isFinal: boolean;
}

/** The files of an open database. Disposing of it closes no file of the database. */
export interface OpenFiles extends Disposable {
  /** Looks at them, after a commit. Returns what is wrong, if something is. */
  look(): Loss | undefined;
}

/**
 * Remembers the files of a database, to look after each commit whether they are still the ones that
 * SQLite writes to, and are still locked: SQLite itself would go on without them.
 *
 * @param path The database, open and in WAL mode.
 * @param watchesLock Whether to look for the lock as well, which costs a `pread` for each batch. A
 *   program that runs only its own code, such as the executable, does not need it.
 * @throws {DatabaseError} If the files cannot be found now, as in the first moments of a shared
 *   folder.
 */
export function openFiles(path: string, watchesLock: boolean): OpenFiles {
  const wal = walFile(path);
  const identity = requireIdentity(path);
  const walIdentity = requireIdentity(wal);
  const lock = watchesLock ? watchLock(identity) : undefined;

  return {
    look() {
      const now = identityOf(path);

      // A restart would create an empty database. The file may come back, as after `mv` there and
      // back: it is the same one then, and its WAL too.
      if (now === undefined) return { reason: lost(path), isFinal: false };
      // SQLite never opens them again. A new process does.
      if (now !== identity) return { reason: lost(path), isFinal: true };
      if (identityOf(wal) !== walIdentity) return { reason: lost(wal), isFinal: true };
      // SQLite never takes it again.
      if (lock?.isHeld() === false) return { reason: UNLOCKED, isFinal: true };
      return undefined;
    },
    [Symbol.dispose]: () => lock?.[Symbol.dispose](),
  };
}

/**
 * The identity of the file at this path while it is open: its device and inode, which no other file
 * gets until it is closed. A time is not part of it: a system without `statx` has no time of birth.
 *
 * @returns `undefined` if there is no file, or it cannot be reached.
 */
export function identityOf(path: string): string | undefined {
  try {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats && `${stats.dev}:${stats.ino}`;
  } catch {
    return undefined;
  }
}

/** The second half of {@linkcode identityOf}, for what outlives a boot or a mount. */
export function inodeOf(path: string): string | undefined {
  return identityOf(path)?.split(":")[1];
}

function requireIdentity(path: string): string {
  const identity = identityOf(path);
  if (identity === undefined) throw new DatabaseError("its files are not there yet; try again");
  return identity;
}

const lost = (path: string) => `"${path}" was removed or replaced while it was open`;

const UNLOCKED =
  "something else in this program opened and closed the database file, which dropped SQLite's lock on it: another process may have removed the WAL";

/** The first byte of SQLite's shared lock: https://www.sqlite.org/fileformat2.html#the_lock_byte_page */
const SHARED_FIRST = 0x4000_0002;

/**
 * Watches the shared lock that a connection in WAL mode holds on the database as long as it is
 * open. `close` of any descriptor of a file drops all locks that the process has on it
 * (https://www.sqlite.org/howtocorrupt.html, section 2.2). So a program that reads its own database
 * file, to copy it or to serve it, lets another process take the exclusive lock, move the WAL into
 * the database and remove it, in the middle of a commit. Only SQLite 3.51 and newer notice that, in
 * the other process.
 *
 * No lock of SQLite's avoids that. Its `unix-excl` locks the same way and keeps all other processes
 * out, backups too; `unix-dotfile` has no WAL; `unix-none` has no locks. SQLite has none by open
 * file description (`F_OFD_SETLK`), and node:sqlite loads no other VFS.
 *
 * Linux shows the locks that a process has on a file with each of its descriptors
 * (proc_pid_fdinfo(5)), its own process only, in any container.
 *
 * BUG: a program that opens and closes `plants.db-shm`, and not the database, is not noticed. So is
 * none on Deno and outside of Linux, where this sees nothing.
 *
 * @param identity Of the database, as of `identityOf`.
 * @returns `isHeld` says whether the lock is there; true if that cannot be seen here.
 */
function watchLock(identity: string) {
  const lock = new RegExp(`:${identity.split(":")[1]} ${SHARED_FIRST} `);
  const bytes = new Uint8Array(4_096);
  const decoder = new TextDecoder("latin1");
  let description: number | undefined;

  function isShown(): boolean {
    if (description === undefined) return false;
    try {
      const length = readSync(description, bytes, 0, bytes.length, 0);
      return lock.test(decoder.decode(bytes.subarray(0, length)));
    } catch {
      // The descriptor that it describes was closed.
      return false;
    }
  }

  function close(): void {
    if (description !== undefined) closeSync(description);
    description = undefined;
  }

  function isHeld(): boolean {
    if (isShown()) return true;

    // Another connection of this process had the descriptor, and was closed.
    close();
    description = descriptionOf(identity);
    return isShown();
  }

  const canSee = isHeld();
  return { isHeld: () => !canSee || isHeld(), [Symbol.dispose]: close };
}

/** Opens the description of a descriptor that this process has of a file; not the file itself. */
function descriptionOf(identity: string): number | undefined {
  if (!SEES_PROCESS) return undefined;

  try {
    const isOfFile = (name: string) => identityOf(`/proc/self/fd/${name}`) === identity;
    const name = readdirSync("/proc/self/fd").find(isOfFile);
    return name === undefined ? undefined : openSync(`/proc/self/fdinfo/${name}`, "r");
  } catch {
    // No Linux, or a system without /proc.
    return undefined;
  }
}
