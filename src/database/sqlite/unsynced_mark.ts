import { existsSync, rmSync, statSync } from "node:fs";
import { createPrivateFile } from "./file_access.ts";
import { databaseFile } from "./database_file.ts";

/**
 * Remembers beside a database file, as `plants.db-unsynced`, that an fsync of it or of its WAL failed: what the next
 * process finds there may be in the page cache only, and no later fsync brings it to the disk. The mark is not synced
 * itself: a power loss ends the page cache, too.
 */
export interface UnsyncedMark {
  /** Whether an fsync failed, and the WAL was not begun anew since. */
  isThere(): boolean;
  /** Marks the file. Where that is impossible it is not. */
  write(): void;
  /** Removes the mark, once the WAL has begun anew. */
  remove(): void;
}

/** The mark of the file at this path. */
export function unsyncedMark(path: string): UnsyncedMark {
  const mark = `${databaseFile(path)}-unsynced`;
  return {
    isThere: () => existsSync(mark),
    write() {
      try {
        createPrivateFile(mark, "", statSync(path));
      } catch {
        // It is there; or a disk that failed is full or read-only by now, too.
      }
    },
    remove: () => rmSync(mark, { force: true }),
  };
}
