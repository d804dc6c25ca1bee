// SQLite's lock without SQLite, by the C library: for what replaces a file, or reads it alone.
import { FFIType } from "bun:ffi";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { cLibrary } from "./c_library.ts";
import { lockHolders } from "./lock_holders.ts";
import { LOCK_BYTES } from "./shared_lock.ts";

/** From `unistd.h`, on Linux and macOS. */
const SEEK_SET = 0;
const F_TLOCK = 2;

/**
 * Takes SQLite's exclusive lock on a file without SQLite: this locks even a corrupt file, and
 * changes nothing. Until it is released, no process reads or writes the database.
 *
 * @returns The lock, to be disposed of. Without a file it locks nothing.
 * @throws {DatabaseError} If another process has the database open.
 */
export function exclusiveLock(file: string, path: string): Disposable {
  if (!existsSync(file)) return new DisposableStack();

  const lock = takeLock(file);
  if (lock !== undefined) return lock;
  const holders = lockHolders(file) ?? "a process has it open";
  throw new DatabaseError(`Cannot replace database "${path}": ${holders}; stop it, and try again`);
}

/**
 * Takes the same lock for reading a file without SQLite's own locks. On a file system that is
 * read-only no process can write, and no lock is needed.
 *
 * @param file From `databaseFile`.
 * @returns The lock, to be disposed of; `undefined` if another process has the database open, or may
 *   write to it by another mount.
 */
export function readingLock(file: string): Disposable | undefined {
  try {
    return takeLock(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EROFS") throw error;
    return isReadOnlyEverywhere(file) ? new DisposableStack() : undefined;
  }
}

/** Takes the lock; `undefined` if another process holds one. */
function takeLock(file: string): Disposable | undefined {
  // Bun and Node.js have no locks of ranges.
  const library = cLibrary({
    lseek: { args: [FFIType.i32, FFIType.i64, FFIType.i32], returns: FFIType.i64 },
    lockf: { args: [FFIType.i32, FFIType.i32, FFIType.i64], returns: FFIType.i32 },
  });
  if (library === undefined)
    throw new DatabaseError(
      "Cannot lock the database: this system has no known C library; restore on Linux or macOS",
    );

  using stack = new DisposableStack();
  const descriptor = openSync(file, "r+");
  // Closing a descriptor releases all locks of the process on the file.
  stack.defer(() => closeSync(descriptor));

  library.lseek(descriptor, LOCK_BYTES.first, SEEK_SET);
  return library.lockf(descriptor, F_TLOCK, LOCK_BYTES.count) === 0 ? stack.move() : undefined;
}

/**
 * Whether the file system of a file is read-only, and not only its mount here: another mount, as the
 * server's in another container, may be writable.
 */
function isReadOnlyEverywhere(file: string): boolean {
  let options = "";
  let longest = 0;

  // The fifth field is where it is mounted, and the last one has the options of the file system:
  // proc_pid_mountinfo(5). A later mount hides an earlier one.
  for (const line of readFileSync("/proc/self/mountinfo", "utf8").trimEnd().split("\n")) {
    const fields = line.split(" ");
    const point = (fields[4] ?? "").replace(/\\(\d{3})/g, (_, octal) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    );
    const isAbove = point === "/" || `${file}/`.startsWith(`${point}/`);
    if (!isAbove || point.length < longest) continue;
    longest = point.length;
    options = fields.at(-1) ?? "";
  }

  return options.split(",").includes("ro");
}
