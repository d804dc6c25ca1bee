import type { Database } from "bun:sqlite";
import { isFailedSync } from "./errors.ts";

/** How long to wait for others who use the WAL, in milliseconds: meanwhile no process can write. */
const BUSY_TIMEOUT_MS = 100;

/**
 * Moves what a server before left in the WAL into the database, and begins the WAL anew. A process that was killed in
 * an fsync leaves transactions there that were never synced; one whose fsync failed leaves some that no later fsync
 * brings to the disk, because the kernel takes their pages for clean. SQLite finds both valid in the page cache, and
 * a response of 200 could rest on them. Takes time with the size of the WAL.
 *
 * While another process uses the WAL, the WAL is synced and not begun anew: such transactions are found by the first
 * process that opens it.
 *
 * @param client Has the database open in WAL mode, and no transaction.
 * @param busyTimeoutMs Set again at the end, in milliseconds.
 * @throws {SQLiteError} If an fsync failed.
 */
export function resetWal(client: Database, busyTimeoutMs: number): void {
  try {
    client.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    const [[busy, pages] = []] = client.query<never, []>("PRAGMA wal_checkpoint(RESTART)").values();
    // The next commit replaces the WAL's header on the disk, which until then has a part of the transactions.
    if (busy === 0n && Number(pages) > 0) client.run("PRAGMA user_version = 0");
  } catch (error) {
    // For example without space: the server starts nevertheless, says 503, and works again by itself.
    if (isFailedSync(error)) throw error;
  } finally {
    client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}
