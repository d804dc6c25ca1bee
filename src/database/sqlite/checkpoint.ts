import type { Database } from "bun:sqlite";
import type { DatabaseMetric } from "../database.ts";
import { walBytes } from "./files.ts";

/**
 * After how many pages of WAL to checkpoint, about 16 MB: fewer checkpoints, fewer writes for random ids. With a quarter of
 * that, two processes that write much meet in their checkpoints so often that the WAL outgrows its bound.
 */
const PAGES = 4_000;

/**
 * From how many pages of WAL on a checkpoint blocks writers until all of it is moved. Beside another busy server a
 * passive one never catches up, and the WAL would grow without end. About 65 MB.
 */
const RESTART_PAGES = 4 * PAGES;

/** How long that checkpoint waits for readers, in milliseconds: a backup in progress holds the WAL, and plants wait. */
const RESTART_TIMEOUT_MS = 100;

/**
 * Makes the checkpoint of a database that has `wal_autocheckpoint` off. SQLite's own one hides a failed fsync; this one
 * throws it.
 *
 * @param setBusyTimeout Sets how long the next statement waits for a lock, in milliseconds.
 * @returns To be called after a commit: moves the WAL into the database when enough has gathered since the last time.
 */
export function checkpointer(client: Database, setBusyTimeout: (timeoutMs: number) => void): () => void {
  const measure = client.prepare("PRAGMA wal_checkpoint(NOOP)");
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  const restart = client.prepare("PRAGMA wal_checkpoint(RESTART)");
  let due = PAGES;
  return () => {
    const pages = pagesOf(measure.values());
    if (pages < due) {
      // The WAL starts from its beginning again once a checkpoint has moved all of it.
      if (pages < PAGES) due = PAGES;
      return;
    }
    // A reader can block it; then the next try comes after as many pages more.
    due = pages + PAGES;
    if (pages < RESTART_PAGES) return void passive.values();
    setBusyTimeout(RESTART_TIMEOUT_MS);
    restart.values();
  };
}

/** The pragma's row: busy, pages in the WAL, pages moved. */
function pagesOf(rows: unknown[][]): number {
  return Number(rows[0]?.[1] ?? 0);
}

/** A checkpoint that waits until the response to the write that made it due has left: it is slow. */
export function deferredCheckpoint(checkpoint: () => void, onFailed: (error: Error) => void) {
  let scheduled: NodeJS.Immediate | undefined;
  let failures = 0;

  function now(): void {
    scheduled = undefined;
    try {
      checkpoint();
    } catch (error) {
      // For example without space: the WAL still has everything. After a failed fsync the whole database is failed.
      failures++;
      onFailed(error as Error);
    }
  }

  return {
    schedule: () => void (scheduled ??= setImmediate(now)),
    cancel: () => clearImmediate(scheduled),
    failures: () => failures,
  };
}

/** The metrics of a SQLite database: its WAL, and the checkpoints that failed so far. */
export function checkpointMetrics(path: string, failures: number): readonly DatabaseMetric[] {
  return [
    {
      name: "plant_store_wal_bytes",
      help: "Size of SQLite's write-ahead log",
      type: "gauge",
      value: walBytes(path),
    },
    {
      name: "plant_store_checkpoint_failures_total",
      help: "Checkpoints that failed: the WAL grows until one succeeds",
      type: "counter",
      value: failures,
    },
  ];
}
