import { Database } from "bun:sqlite";

/**
 * Waits until no other process holds the lock of this file, and holds it to the end of the scope: test files run in
 * several processes, and what all of them need is made by one. A lock of SQLite's ends with its process, however that ends.
 */
export function processLock(path: string): Disposable {
  const lock = new Database(path);
  lock.run("PRAGMA busy_timeout = 120000");
  lock.run("BEGIN EXCLUSIVE");
  return lock;
}
