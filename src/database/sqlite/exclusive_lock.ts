import { FFIType } from "bun:ffi";
import { closeSync, existsSync, openSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { cLibrary } from "./c_library.ts";
import { LOCK_BYTES } from "./shared_lock.ts";

/** From `unistd.h`, on Linux and macOS. */
const SEEK_SET = 0;
const F_TLOCK = 2;

/**
 * Takes SQLite's exclusive lock on a file without SQLite, so that it works on a corrupt file and changes
 * nothing. Until the lock is released, no other process can read or write the database.
 *
 * @returns The lock, which the caller disposes of. If the file does not exist, it locks nothing.
 * @throws {DatabaseError} If another process has the database open.
 */
export function exclusiveLock(file: string, path: string): Disposable {
  if (!existsSync(file)) return new DisposableStack();

  const lock = takeLock(file);
  if (lock !== undefined) return lock;
  throw new DatabaseError(
    `Cannot replace database "${path}": a process has it open (lslocks names it): stop it, and try again`,
  );
}

/** Takes the lock; `undefined` if another process holds one. */
function takeLock(file: string): Disposable | undefined {
  // Bun and Node.js cannot lock byte ranges.
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
