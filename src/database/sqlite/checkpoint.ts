import type { DatabaseMetric } from "../database.ts";

/**
 * At how many pages each kind of checkpoint was last begun; 0 if there was none since the WAL began
 * anew.
 */
export type LastCheckpoints = Readonly<Record<"background" | "inline" | "blocking", number>>;

/** After the WAL has begun anew. */
export const NO_CHECKPOINTS: LastCheckpoints = { background: 0, inline: 0, blocking: 0 };

/**
 * What to do after a commit. Each kind moves pages from the WAL into the database:
 *
 * - `background`: a PASSIVE checkpoint on a thread and a connection of its own, from 1,000 new pages
 *   on. It blocks no reader and no writer. SQLite begins the WAL anew only if a commit finds every page of it in the
 *   database. Under load, newer pages keep coming.
 * - `inline`: a PASSIVE checkpoint on the writer's thread, between two batches, from 4,000 pages on
 *   and only for the last 200. Plants wait a moment, and the next commit begins the WAL anew.
 * - `blocking`: a RESTART checkpoint on the writer's thread, from 16,000 pages on. It is for several
 *   servers on one file, where another process always commits in between. It holds the lock of
 *   writers and waits for readers, for 100 ms at most: without a limit, such a checkpoint blocks
 *   writers without end (https://github.com/benbjohnson/litestream/issues/724).
 */
export type Checkpoint = keyof LastCheckpoints | "none";

/** From how many pages on the WAL is to begin anew, about 16 MB. */
const PAGES = 4_000;

/**
 * How many pages gather for a pass: with random ids it takes 5 ms for a thousand in a file of a
 * million plants.
 */
const PASS_PAGES = PAGES / 4;

/**
 * How many pages the writer's own thread may move while plants wait, once the WAL is to begin anew.
 */
const FEW_PAGES = PAGES / 20;

/** From how many pages on other processes have to wait, about 65 MB. */
const BLOCKING_PAGES = 4 * PAGES;

/**
 * Decides what to do. What a reader blocks, such as a backup, is tried again when more pages have
 * come.
 *
 * @param pages How many pages the WAL has.
 * @param left How many of them are not in the database yet.
 */
export function nextCheckpoint(pages: number, left: number, last: LastCheckpoints): Checkpoint {
  if (pages >= BLOCKING_PAGES && pages - last.blocking >= PAGES) return "blocking";
  if (pages >= PAGES && left <= FEW_PAGES && pages - last.inline >= PASS_PAGES) return "inline";
  const due = pages >= PAGES ? FEW_PAGES : PASS_PAGES;
  return left > due && pages - last.background > due ? "background" : "none";
}

/**
 * From how many bytes on the file of the WAL is cut when the WAL begins anew: more than one server
 * needs, so that it writes into space that the file has. A long backup can make it much larger.
 */
export const WAL_FILE_BYTES = 2 * PAGES * 4_096;

/** The metrics of a SQLite database: its WAL, and the checkpoints that failed so far. */
export function sqliteMetrics(walBytes = 0, checkpointFailures = 0): readonly DatabaseMetric[] {
  return [
    {
      name: "plant_store_wal_bytes",
      help: "What SQLite's write-ahead log holds, in bytes; its file may be larger",
      type: "gauge",
      value: walBytes,
    },
    {
      name: "plant_store_checkpoint_failures_total",
      help: "Checkpoints that failed: the WAL grows until one succeeds",
      type: "counter",
      value: checkpointFailures,
    },
  ];
}
