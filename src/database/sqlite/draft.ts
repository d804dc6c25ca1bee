import { FFIType } from "bun:ffi";
import { existsSync } from "node:fs";
import { type FileHandle, link, mkdtemp, open, readdir, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";

import { DatabaseError } from "../database.ts";
import { cLibrary } from "./c_library.ts";

/**
 * A copy in the making, in a private directory beside its place. Disposing of it removes it.
 *
 * It is fsynced by descriptors from before the first write. The kernel may tell none that is opened
 * later that a write has failed.
 */
export interface Draft extends AsyncDisposable {
  readonly path: string;
  readonly file: FileHandle;
  /** The directory of its place. */
  readonly parent: FileHandle;
}

const PREFIX = ".plant-store-backup-";

/** The name of a copy until it is complete. */
const DRAFT = "plants.db";

/**
 * Makes an empty draft: beside the target, because a hard link stays in one file system.
 *
 * @throws {DatabaseError} If the file system has no hard links.
 */
export async function draftIn(place: string): Promise<Draft> {
  await removeAbandoned(place);

  await using stack = new AsyncDisposableStack();
  const parent = stack.use(await open(place));
  const directory = await lockedDirectory(place, stack);
  // One that cannot be removed fails nothing: the next backup or restore removes it.
  stack.defer(() => rm(directory, { recursive: true, force: true }).catch(() => {}));

  const path = join(directory, DRAFT);
  const file = stack.use(await open(path, "wx", 0o600));
  await requireHardLinks(path, place);

  // The caller disposes of it from now on.
  const made = stack.move();
  return { path, file, parent, [Symbol.asyncDispose]: () => made.disposeAsync() };
}

/** By what codes a file system without hard links refuses one: vfat, FUSE, and SMB. */
const NO_HARD_LINKS = ["EPERM", "ENOSYS", "EOPNOTSUPP", "ENOTSUP"];

/**
 * Links a draft once, before a copy that may take minutes: the link that puts it in place comes
 * last.
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
 * Makes a private directory, and locks it until the stack is disposed of: so others see that its
 * backup is alive. It is a lock of the directory, because on macOS SQLite would wait for one of the
 * file.
 */
async function lockedDirectory(place: string, stack: AsyncDisposableStack): Promise<string> {
  for (;;) {
    const directory = await mkdtemp(join(place, PREFIX));
    const handle = await open(directory).catch(async (error: unknown) => {
      // Without a free descriptor, for example, the next one could not be opened either.
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
    // Before it was locked, another backup has taken it for a dead one's.
    await handle.close();
  }
}

/** From `sys/file.h`, on Linux and macOS. */
const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Locks a file or a directory, for as long as it is open.
 *
 * @returns Whether it is locked: some file systems, such as NFS, lock no directories.
 */
function lock({ fd }: FileHandle, how: number): boolean {
  const library = cLibrary({
    flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  });
  return library?.flock(fd, how) === 0;
}

/**
 * Removes the directories of killed backups and restores: an operator does not notice them, their
 * names are hidden.
 */
async function removeAbandoned(place: string): Promise<void> {
  for (const entry of await readdir(place, { withFileTypes: true })) {
    // Not for a link: its target stays untouched.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // It may be another user's, or its own backup may remove it now: this backup goes on.
    await removeIfAbandoned(join(place, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  await using directory = await open(path);
  if (!lock(directory, LOCK_EX | LOCK_NB)) return;

  // A directory of ours has only the draft and its journal.
  const files = await readdir(path, { withFileTypes: true });
  const isOurs = files.every((file) => file.isFile() && file.name.startsWith(DRAFT));
  if (isOurs) await rm(path, { recursive: true });
}
