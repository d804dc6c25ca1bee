import { closeSync, existsSync, openSync, statfsSync } from "node:fs";
import { dirname } from "node:path";

import { isInWalMode } from "./files.ts";
import { SEES_PROCESS } from "./own_process.ts";

/** The magic number of btrfs: statfs(2). */
const BTRFS = 0x9123_683e;

/**
 * Creates the WAL-index, `plants.db-shm`, on btrfs before SQLite does, and disables copy on write for it.
 * That is only possible while a file is empty.
 *
 * SQLite maps the index into memory. If a mapped page cannot be written, the kernel sends a signal
 * (SIGBUS), which ends the process. With copy on write, that happens on a full disk. The database and its
 * WAL keep copy on write, with its checksums: SQLite writes them with system calls, which return an error.
 *
 * BUG: the signal still ends the process on a full disk if the index shares blocks: on btrfs after a
 * snapshot, on XFS after `cp --reflink`. Also on btrfs before Linux 6.17, under Deno, or if another
 * program, such as Litestream, opened the database first.
 *
 * @param file From `databaseFile`.
 * @param begins Whether SQLite is about to switch the file to WAL mode. In other modes SQLite does not
 *   use an index, and would not remove this one.
 * @param disableCopyOnWrite From the driver.
 */
export function createWalIndex(
  file: string,
  begins: boolean,
  disableCopyOnWrite: (path: string) => void,
): void {
  const index = `${file}-shm`;

  try {
    if (!SEES_PROCESS || statfsSync(dirname(file)).type !== BTRFS) return;
    if (existsSync(index) || !(begins || isInWalMode(file))) return;

    // SQLite gives it the mode of the database.
    closeSync(openSync(index, "wx", 0o600));
    disableCopyOnWrite(index);
  } catch {
    // Another process has just created it, or SQLite will report why it cannot be created.
  }
}
