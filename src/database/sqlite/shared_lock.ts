import { closeSync, openSync, readdirSync, readSync } from "node:fs";

import { identityOf, type Loss } from "./file_identity.ts";
import { SEES_PROCESS } from "./own_process.ts";

/** Watches the shared lock of an open database. Disposing of it closes no file of the database. */
interface SharedLock extends Disposable {
  /** Returns the loss if the lock is no longer held; `undefined` if it is held or cannot be seen. */
  look(): Loss | undefined;
}

/**
 * Watches the shared lock that a connection in WAL mode holds while it is open. Closing any descriptor of
 * a file drops all POSIX locks that the process holds on the file
 * (https://www.sqlite.org/howtocorrupt.html, section 2.2). This happens if the program itself opens the
 * database file, for example to copy or serve it. Then another process can take the exclusive lock during
 * a commit, move the WAL into the database file, and remove the WAL. Only SQLite 3.51 and newer notice
 * that, in the other process.
 *
 * No VFS of SQLite avoids this. `unix-excl` uses the same locks, and keeps all other processes out, even
 * backups; `unix-dotfile` has no WAL; `unix-none` has no locks. SQLite does not use open file description
 * locks (`F_OFD_SETLK`), and node:sqlite cannot load another VFS.
 *
 * Linux lists a lock under the descriptor that took it (proc_pid_fdinfo(5)), in any container.
 *
 * BUG: closing `plants.db-shm` also drops locks, which this does not detect. On Deno, and on systems other
 * than Linux, this detects nothing.
 *
 * @param path The database, open and in WAL mode.
 */
export function watchLock(path: string): SharedLock {
  const identity = identityOf(path) ?? "";
  const lock = new RegExp(`:${identity.split(":")[1]} ${LOCK_BYTES.shared} `);
  const bytes = new Uint8Array(4_096);
  const decoder = new TextDecoder("latin1");
  let description: number | undefined;

  function isShown(): boolean {
    if (description === undefined) return false;
    try {
      const length = readSync(description, bytes, 0, bytes.length, 0);
      return lock.test(decoder.decode(bytes.subarray(0, length)));
    } catch {
      // The descriptor was closed.
      return false;
    }
  }

  function close(): void {
    if (description !== undefined) closeSync(description);
    description = undefined;
  }

  function isHeld(): boolean {
    if (isShown()) return true;

    // Another connection of this process may have taken the lock, which is listed only under its
    // descriptor.
    for (const name of descriptorsOf(identity)) {
      close();
      description = describe(name);
      if (isShown()) return true;
    }
    return false;
  }

  const canSee = isHeld();
  return {
    // SQLite never takes the lock again.
    look: () => (!canSee || isHeld() ? undefined : { reason: UNLOCKED, lost: "lock" }),
    [Symbol.dispose]: close,
  };
}

/** Returns the descriptors that this process has open for a file. */
function descriptorsOf(identity: string): string[] {
  if (!SEES_PROCESS) return [];

  try {
    const isOfFile = (name: string) => identityOf(`/proc/self/fd/${name}`) === identity;
    return readdirSync("/proc/self/fd").filter(isOfFile);
  } catch {
    // Not Linux, or /proc is not mounted.
    return [];
  }
}

/** Opens the `fdinfo` of a descriptor, not its file. */
function describe(name: string): number | undefined {
  try {
    return openSync(`/proc/self/fdinfo/${name}`, "r");
  } catch {
    // It was closed, or the process is out of descriptors.
    return undefined;
  }
}

const UNLOCKED =
  "something else in this program opened and closed the database file, which dropped SQLite's lock on it: another process may have removed the WAL";

/**
 * The bytes of a file that SQLite locks. Those of the shared lock follow the pending and the reserved
 * byte: https://www.sqlite.org/fileformat2.html#the_lock_byte_page
 */
export const LOCK_BYTES = { first: 0x4000_0000, shared: 0x4000_0002, count: 512 };
