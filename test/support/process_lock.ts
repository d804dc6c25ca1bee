import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";

/**
 * Waits until no other process holds the lock of this file, and holds it to the end of the scope.
 * Test files run in several processes. A lock of SQLite's ends with its process, however that ends.
 */
function processLock(path: string): Disposable {
  const lock = new Database(path);
  lock.run("PRAGMA busy_timeout = 120000");
  lock.run("BEGIN EXCLUSIVE");
  return lock;
}

/**
 * Makes a directory that all processes need, once: it is there with all that is in it, or not at
 * all.
 */
export function makeOnce(path: string, fill: (directory: string) => void): void {
  if (existsSync(path)) return;
  using _ = processLock(`${path}.lock`);
  if (existsSync(path)) return;
  const partial = `${path}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial);
  fill(partial);
  renameSync(partial, path);
}
