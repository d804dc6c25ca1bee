import { closeSync, existsSync, openSync, statfsSync } from "node:fs";
import { dirname } from "node:path";

import { isInWalMode } from "./files.ts";
import { SEES_PROCESS } from "./own_process.ts";

/** Of statfs(2). */
const BTRFS = 0x9123_683e;

/**
 * Creates the index of the WAL, `plants.db-shm`, on btrfs, before SQLite does: as a file without
 * copy on write, which only an empty file can become.
 *
 * SQLite maps the index. A mapped page that cannot be written is not an error but a signal (SIGBUS),
 * which ends the process. On a full disk that copies on write, no page can be written. The database
 * and its WAL keep their checksums: SQLite writes them by calls, which fail.
 *
 * BUG: the signal still ends the process on a full disk if the blocks of the index are shared: on
 * btrfs after a snapshot, on XFS after `cp --reflink`. Likewise on btrfs if Linux is older than 6.17,
 * or if another program, such as Litestream, opened the database first; and under Deno.
 *
 * @param file From `databaseFile`.
 * @param begins Whether SQLite is about to switch the file to WAL mode. In no other mode it makes an
 *   index, and so removes none.
 * @param disableCopyOnWrite Of the driver.
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
    // Another process has just made it; or SQLite says why it cannot be made.
  }
}
