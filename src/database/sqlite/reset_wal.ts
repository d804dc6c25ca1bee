import type { Database } from "bun:sqlite";
import { DatabaseError } from "../database.ts";
import { isFailedSync } from "./errors.ts";
import { unsyncedMark } from "./unsynced_mark.ts";

/** How long to wait for others who use the WAL, in milliseconds: meanwhile no process can write. */
const BUSY_TIMEOUT_MS = 100;

/**
 * Moves what a server before left in the WAL into the database, and begins the WAL anew. A process that was killed in
 * an fsync leaves transactions there that were never synced; one whose fsync failed leaves some that no later fsync
 * brings to the disk, because the kernel takes their pages for clean. SQLite finds both valid in the page cache, and
 * a response of 200 could rest on them. Takes time with the size of the WAL.
 *
 * While another process uses the WAL, the WAL is synced and not begun anew. That is not enough after an fsync that
 * failed: a process that only reads may have found such transactions first, and this waits for it.
 *
 * @param client Has the database open in WAL mode, and no transaction.
 * @param busyTimeoutMs Set again at the end, in milliseconds; how long to wait where an fsync failed before.
 * @throws {SQLiteError} If an fsync fails.
 * @throws {DatabaseError} If an fsync failed before, and another process still reads what it left in the WAL.
 */
export function resetWal(client: Database, busyTimeoutMs: number): void {
  const mark = unsyncedMark(client.filename);
  const isMarked = mark.isThere();
  try {
    client.run(`PRAGMA busy_timeout = ${isMarked ? busyTimeoutMs : BUSY_TIMEOUT_MS}`);
    const [[busy, pages] = []] = client.query<never, []>("PRAGMA wal_checkpoint(RESTART)").values();
    // The next commit replaces the WAL's header on the disk, which until then has a part of the transactions.
    if (busy === 0n && Number(pages) > 0) client.run("PRAGMA user_version = 0");
    if (isMarked && busy !== 0n) throw new DatabaseError(IN_USE);
    if (isMarked) mark.remove();
  } catch (error) {
    // For example without space: the server starts nevertheless, says 503, and works again by itself.
    if (isMarked || isFailedSync(error)) throw error;
  } finally {
    client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}

const IN_USE =
  "an fsync failed before, and another process reads what that left in the WAL; try again when it has ended";
