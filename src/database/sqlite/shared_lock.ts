import { closeSync, openSync, readdirSync, readSync } from "node:fs";

import { identityOf, type Loss } from "./file_identity.ts";
import { SEES_PROCESS } from "./own_process.ts";

/** The shared lock of an open database. Disposing of it closes no file of the database. */
interface SharedLock extends Disposable {
  /** Returns the loss if the lock is not held any more; `undefined` if it is, or cannot be seen. */
  look(): Loss | undefined;
}

/**
 * Watches the shared lock that a connection in WAL mode holds on the database as long as it is
 * open. `close` of any descriptor of a file drops all locks that the process has on it
 * (https://www.sqlite.org/howtocorrupt.html, section 2.2). A program may read its own database file, to
 * copy it or to serve it. Then another process can take the exclusive lock in the middle of a commit,
 * move the WAL into the database, and remove it. Only SQLite 3.51 and newer notice that, in the other
 * process.
 *
 * No lock of SQLite's avoids that. Its `unix-excl` locks the same way and keeps all other processes
 * out, backups too; `unix-dotfile` has no WAL; `unix-none` has no locks. SQLite has none by open
 * file description (`F_OFD_SETLK`), and node:sqlite loads no other VFS.
 *
 * Linux shows a lock with the descriptor by which this process took it (proc_pid_fdinfo(5)), in any
 * container.
 *
 * BUG: closing `plants.db-shm` alone also drops locks, and this does not detect it. Deno and systems
 * other than Linux do not show locks: there it detects nothing.
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

    // Another connection of this process may have taken it: only with its descriptor it is shown.
    for (const name of descriptorsOf(identity)) {
      close();
      description = describe(name);
      if (isShown()) return true;
    }
    return false;
  }

  const canSee = isHeld();
  return {
    // SQLite never takes it again.
    look: () => (!canSee || isHeld() ? undefined : { reason: UNLOCKED, lost: "lock" }),
    [Symbol.dispose]: close,
  };
}

/** The descriptors that this process has of a file. */
function descriptorsOf(identity: string): string[] {
  if (!SEES_PROCESS) return [];

  try {
    const isOfFile = (name: string) => identityOf(`/proc/self/fd/${name}`) === identity;
    return readdirSync("/proc/self/fd").filter(isOfFile);
  } catch {
    // No Linux, or a system without /proc.
    return [];
  }
}

/** Opens the description of a descriptor; not its file. */
function describe(name: string): number | undefined {
  try {
    return openSync(`/proc/self/fdinfo/${name}`, "r");
  } catch {
    // It was closed, or no descriptor is left.
    return undefined;
  }
}

const UNLOCKED =
  "something else in this program opened and closed the database file, which dropped SQLite's lock on it: another process may have removed the WAL";

/**
 * The bytes of a file that SQLite locks, the shared lock behind two of another kind:
 * https://www.sqlite.org/fileformat2.html#the_lock_byte_page
 */
export const LOCK_BYTES = { first: 0x4000_0000, shared: 0x4000_0002, count: 512 };
