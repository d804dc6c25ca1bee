import { numberFrom, type SqliteConnection } from "./driver.ts";

/**
 * At how many pages each kind of checkpoint was last begun; 0 if there was none since the WAL began
 * anew.
 */
type LastCheckpoints = Readonly<Record<"background" | "inline" | "blocking", number>>;

/** After the WAL has begun anew. */
const NO_CHECKPOINTS: LastCheckpoints = { background: 0, inline: 0, blocking: 0 };

/**
 * What to do after a commit. Each kind moves pages from the WAL into the database:
 *
 * - `background`: a PASSIVE checkpoint on a thread and a connection of its own, from 1,000 new pages
 *   on, and from 200 on once the WAL is to begin anew. It blocks no reader and no writer. SQLite
 *   begins the WAL anew only if a commit finds every page of it in the database. Under load, newer
 *   pages keep coming.
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

/** How many pages gather for a pass. */
const PASS_PAGES = PAGES / 4;

/**
 * How many pages the writer's own thread may move while plants wait, once the WAL is to begin anew.
 */
const FEW_PAGES = PAGES / 20;

/** From how many pages on other processes have to wait, about 65 MB. */
const BLOCKING_PAGES = 4 * PAGES;

/**
 * Decides what to do. A checkpoint that a reader blocks, such as a backup, is retried after more
 * pages.
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

/** Another thread with a connection of its own to the file. */
export interface CheckpointThread {
  /** Moves pages from the WAL into the database, and syncs it. */
  pass(): Promise<void>;
  /** Closes the connection, without a checkpoint, once the disk responds. */
  close(): Promise<unknown>;
  /** Resolves if the thread crashes, which fails the store. */
  readonly failed: Promise<Error>;
}

/** What a checkpointer needs of its store. */
interface CheckpointerOptions {
  readonly connection: SqliteConnection;
  /** Makes checkpoints on another thread. @default this thread makes them */
  readonly background: CheckpointThread | undefined;
  /** Receives the size of the WAL's content, in bytes: another thread reads it. */
  readonly walBytes: Float64Array;
  /** Runs a call that may wait for a lock for so many milliseconds. */
  readonly run: <Result>(call: () => Result, timeoutMs: number) => Result;
  /** Translates an error. A failed fsync is marked, and ends the store. */
  readonly settle: (error: unknown) => unknown;
  /** False once the store has failed or is closed. */
  readonly isOpen: () => boolean;
  /**
   * Called when a checkpoint failed. A failed fsync has also failed the whole store by then. @default
   * does nothing
   */
  readonly onFailed: ((error: Error) => void) | undefined;
}

/** Makes the checkpoints of a store, as {@linkcode nextCheckpoint} decides. */
export function checkpointer(options: CheckpointerOptions) {
  const { connection, background, walBytes, run, settle, isOpen, onFailed } = options;
  const frameBytes = numberFrom(connection, "PRAGMA page_size") + FRAME_HEADER_BYTES;
  let isScheduled = false;
  let isPassing = false;
  let last = NO_CHECKPOINTS;
  /** How many plants were written since the WAL was measured: with random ids a page each. */
  let written = 0;
  /** How many pages the WAL had when it was measured. */
  let walPages = 0;

  function checkpointIfDue(): void {
    isScheduled = false;
    // SQLite allows one checkpoint at a time.
    if (isPassing || !isOpen()) return;
    // Without a thread for passes only a full WAL matters. Before 3.51 SQLite knows no NOOP, and measuring is
    // a PASSIVE checkpoint.
    if (background === undefined && written < MEASURED_PLANTS) return;

    try {
      const next = run(measure, 0);
      if (next === "background") passInBackground();
      else if (next !== "none") run(() => connection.query(STATEMENTS[next]).all(), WAIT_MS[next]);
    } catch (error) {
      onFailed?.(error as Error);
    }
  }

  /** Measures the WAL, and decides. */
  function measure(): Checkpoint {
    const [[, inWal, moved] = []] = connection.query("PRAGMA wal_checkpoint(NOOP)").values();
    const pages = Number(inWal);
    // Without the other thread this one moves all pages: none are left for a pass.
    const left = background === undefined ? 0 : pages - Number(moved);

    // The WAL began anew.
    if (pages < walPages) last = NO_CHECKPOINTS;
    walPages = pages;
    walBytes[0] = pages === 0 ? 0 : WAL_HEADER_BYTES + pages * frameBytes;
    written = 0;

    const next = nextCheckpoint(pages, left, last);
    if (next !== "none") last = { ...last, [next]: pages };
    return next;
  }

  function passInBackground(): void {
    isPassing = true;
    background
      ?.pass()
      // No checkpoint comes between the failure and this: a second fsync would hide the first.
      .catch((error: unknown) => onFailed?.(settle(error) as Error))
      .finally(() => (isPassing = false));
  }

  return {
    /**
     * Makes the checkpoint that is due after a commit, once the response to it has left.
     * `wal_autocheckpoint` is off: SQLite's own checkpoint hides a failed fsync, and holds up the
     * commit that made it due.
     *
     * @param plants How many the commit wrote.
     */
    schedule(plants: number): void {
      written += plants;
      if (isScheduled) return;
      isScheduled = true;
      setImmediate(checkpointIfDue);
    },
  };
}

/** The checkpoints on the writer's thread. */
const STATEMENTS = {
  inline: "PRAGMA wal_checkpoint(PASSIVE)",
  blocking: "PRAGMA wal_checkpoint(RESTART)",
} as const;

/** How long each waits for readers, in milliseconds: meanwhile plants wait. */
const WAIT_MS = { inline: 0, blocking: 100 } as const;

/** From https://www.sqlite.org/fileformat2.html#the_write_ahead_log, in bytes. */
const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** After how many plants the WAL is measured without another thread. */
const MEASURED_PLANTS = 1_000;
