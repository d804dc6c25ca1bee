import { FFIType } from "bun:ffi";
import { existsSync } from "node:fs";
import { type FileHandle, link, mkdtemp, open, readdir, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";

import { DatabaseError } from "../database.ts";
import { cLibrary } from "./c_library.ts";

/**
 * An unfinished copy, in a private directory beside its target. Disposing of a draft removes it.
 *
 * It is fsynced through descriptors that were opened before the first write: a descriptor that is opened
 * later may not see an earlier write error.
 */
export interface Draft extends AsyncDisposable {
  readonly path: string;
  readonly file: FileHandle;
  /** The directory of the target. */
  readonly parent: FileHandle;
}

const PREFIX = ".plant-store-backup-";

/** The file name of a draft. */
const DRAFT = "plants.db";

/**
 * Makes an empty draft beside the target, because a hard link cannot cross file systems.
 *
 * @throws {DatabaseError} If the file system has no hard links.
 */
export async function draftIn(place: string): Promise<Draft> {
  await removeAbandoned(place);

  await using stack = new AsyncDisposableStack();
  const parent = stack.use(await open(place));
  const directory = await lockedDirectory(place, stack);
  // Ignore errors: the next backup or restore removes the directory.
  stack.defer(() => rm(directory, { recursive: true, force: true }).catch(() => {}));

  const path = join(directory, DRAFT);
  const file = stack.use(await open(path, "wx", 0o600));
  await requireHardLinks(path, place);

  // The caller disposes of it from now on.
  const made = stack.move();
  return { path, file, parent, [Symbol.asyncDispose]: () => made.disposeAsync() };
}

/** The error codes of file systems without hard links: vfat, FUSE and SMB. */
const NO_HARD_LINKS = ["EPERM", "ENOSYS", "EOPNOTSUPP", "ENOTSUP"];

/**
 * Requires that the file system has hard links. Checks this before a copy that may take minutes, because
 * the link to the target comes last.
 */
async function requireHardLinks(draft: string, place: string): Promise<void> {
  try {
    await link(draft, `${draft}-link`);
    await rm(`${draft}-link`);
  } catch (cause) {
    if (!NO_HARD_LINKS.includes(String((cause as NodeJS.ErrnoException).code))) throw cause;
    throw new DatabaseError(
      `Cannot write to "${place}": its file system has no hard links; use another one`,
      { cause },
    );
  }
}

/** Gives a complete draft its permissions, and fsyncs it. */
export async function complete({ file }: Draft, mode: number): Promise<void> {
  await file.chmod(mode & 0o777);
  await file.sync();
}

/**
 * Makes a private directory, and locks it until the stack is disposed of, which shows other processes
 * that the backup is running. It locks the directory and not the file, because on macOS SQLite would wait
 * for a lock on the file.
 */
async function lockedDirectory(place: string, stack: AsyncDisposableStack): Promise<string> {
  for (;;) {
    const directory = await mkdtemp(join(place, PREFIX));
    const handle = await open(directory).catch(async (error: unknown) => {
      // Retry only if another backup has removed the directory. Out of descriptors, a retry would fail too.
      if (!existsSync(directory)) return undefined;
      await rmdir(directory).catch(() => {});
      throw error;
    });
    if (handle === undefined) continue;

    lock(handle, LOCK_EX);
    if (existsSync(directory)) {
      stack.use(handle);
      return directory;
    }
    // Another backup has removed the directory before it was locked.
    await handle.close();
  }
}

/** From `sys/file.h`, on Linux and macOS. */
const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Locks a file or a directory until its descriptor is closed.
 *
 * @returns Whether it is locked. Some file systems, such as NFS, cannot lock directories.
 */
function lock({ fd }: FileHandle, how: number): boolean {
  const library = cLibrary({
    flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  });
  return library?.flock(fd, how) === 0;
}

/**
 * Removes the directories of killed backups and restores. Their names begin with a dot, so an operator
 * would not notice them.
 */
async function removeAbandoned(place: string): Promise<void> {
  for (const entry of await readdir(place, { withFileTypes: true })) {
    // Never follow a link.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // Ignore errors: it may belong to another user, or its own backup may be removing it.
    await removeIfAbandoned(join(place, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  await using directory = await open(path);
  if (!lock(directory, LOCK_EX | LOCK_NB)) return;

  // Our directories contain only the draft and its journal.
  const files = await readdir(path, { withFileTypes: true });
  const isOurs = files.every((file) => file.isFile() && file.name.startsWith(DRAFT));
  if (isOurs) await rm(path, { recursive: true });
}
