import { numberFrom, type SqliteConnection } from "./driver.ts";

/**
 * The length of the WAL, in pages, when each kind of checkpoint last began; 0 if there was none since
 * the WAL restarted.
 */
type LastCheckpoints = Readonly<Record<"background" | "inline" | "blocking", number>>;

/** The state after the WAL has restarted. */
const NO_CHECKPOINTS: LastCheckpoints = { background: 0, inline: 0, blocking: 0 };

/**
 * The checkpoint to run after a commit. Each kind moves pages from the WAL into the database file:
 *
 * - `background`: a PASSIVE checkpoint on another thread and connection. Runs after 1,000 new pages, or
 *   after 200 once the WAL should restart. It blocks neither readers nor writers. But SQLite restarts
 *   the WAL only if a commit finds all of its pages in the database file. Under load there are always
 *   newer pages.
 * - `inline`: a PASSIVE checkpoint on the writer's thread, between two batches. Runs from 4,000 pages on,
 *   if at most 200 are left to move. Plants wait a moment, and the next commit restarts the WAL.
 * - `blocking`: a RESTART checkpoint on the writer's thread, from 16,000 pages on. It is for several
 *   servers on one file, where another process always commits in between. It holds the write lock and
 *   waits for readers, for at most 100 ms. Without a limit it could block writers forever
 *   (https://github.com/benbjohnson/litestream/issues/724).
 */
export type Checkpoint = keyof LastCheckpoints | "none";

/** The length at which the WAL should restart, in pages: about 16 MB. */
const PAGES = 4_000;

/** How many new pages make a background checkpoint due. */
const PASS_PAGES = PAGES / 4;

/** How many pages the writer's thread may move while plants wait, once the WAL should restart. */
const FEW_PAGES = PAGES / 20;

/** The length from which a checkpoint may block other processes, in pages: about 65 MB. */
const BLOCKING_PAGES = 4 * PAGES;

/**
 * Decides which checkpoint to run. If a reader, such as a backup, blocks a checkpoint, it is retried after
 * more pages.
 *
 * @param pages The length of the WAL, in pages.
 * @param left How many of them are not in the database file yet.
 */
export function nextCheckpoint(pages: number, left: number, last: LastCheckpoints): Checkpoint {
  if (pages >= BLOCKING_PAGES && pages - last.blocking >= PAGES) return "blocking";
  if (pages >= PAGES && left <= FEW_PAGES && pages - last.inline >= PASS_PAGES) return "inline";
  const due = pages >= PAGES ? FEW_PAGES : PASS_PAGES;
  return left > due && pages - last.background > due ? "background" : "none";
}

/**
 * The size to which the WAL file is truncated when the WAL restarts, in bytes. One server needs less, so
 * it overwrites space that is already allocated. A long backup can make the file much larger.
 */
export const WAL_FILE_BYTES = 2 * PAGES * 4_096;

/** A background thread with its own connection to the file. */
export interface CheckpointThread {
  /** Runs a PASSIVE checkpoint. */
  pass(): Promise<void>;
  /** Closes the connection, without a checkpoint, once the disk responds. */
  close(): Promise<unknown>;
  /** Resolves if the thread crashes, which fails the store. */
  readonly failed: Promise<Error>;
}

/** Options of {@linkcode checkpointer}, from its store. */
interface CheckpointerOptions {
  readonly connection: SqliteConnection;
  /** Runs checkpoints on another thread. @default this thread runs them */
  readonly background: CheckpointThread | undefined;
  /** Receives the size of the WAL's content, in bytes. Shared with the thread that reports it. */
  readonly walBytes: Float64Array;
  /** Runs a call with a busy timeout, in milliseconds. */
  readonly run: <Result>(call: () => Result, timeoutMs: number) => Result;
  /** Translates an error. A failed fsync sets the marker and fails the store. */
  readonly settle: (error: unknown) => unknown;
  /** False once the store has failed or is closed. */
  readonly isOpen: () => boolean;
  /**
   * Called when a checkpoint fails. If its fsync failed, the store has failed already.
   *
   * @default does nothing
   */
  readonly onFailed: ((error: Error) => void) | undefined;
}

/** Runs the checkpoints of a store that {@linkcode nextCheckpoint} decides on. */
export function checkpointer(options: CheckpointerOptions) {
  const { connection, background, walBytes, run, settle, isOpen, onFailed } = options;
  const frameBytes = numberFrom(connection, "PRAGMA page_size") + FRAME_HEADER_BYTES;
  let isScheduled = false;
  let isPassing = false;
  let last = NO_CHECKPOINTS;
  /** How many plants were written since the WAL was measured. With random ids, each takes a page. */
  let written = 0;
  /** How many pages the WAL had when it was measured. */
  let walPages = 0;

  function checkpointIfDue(): void {
    isScheduled = false;
    // SQLite allows one checkpoint at a time.
    if (isPassing || !isOpen()) return;
    // Without a background thread, measure seldom: before SQLite 3.51, which added NOOP, measuring runs a
    // PASSIVE checkpoint.
    if (background === undefined && written < MEASURED_PLANTS) return;

    try {
      const next = run(measure, 0);
      if (next === "background") passInBackground();
      else if (next !== "none") run(() => connection.query(STATEMENTS[next]).all(), WAIT_MS[next]);
    } catch (error) {
      onFailed?.(error as Error);
    }
  }

  /** Measures the WAL, and decides which checkpoint to run. */
  function measure(): Checkpoint {
    const [[, inWal, moved] = []] = connection.query("PRAGMA wal_checkpoint(NOOP)").values();
    const pages = Number(inWal);
    // Without a background thread, this thread moves all pages.
    const left = background === undefined ? 0 : pages - Number(moved);

    // The WAL has restarted.
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
      // No other checkpoint may run before this: a second fsync would hide the failure of the first.
      .catch((error: unknown) => onFailed?.(settle(error) as Error))
      .finally(() => (isPassing = false));
  }

  return {
    /**
     * Runs the checkpoint that is due after a commit, once its response was sent. `wal_autocheckpoint` is
     * off, because SQLite's own checkpoint hides a failed fsync and delays the commit that triggers it.
     *
     * @param plants The number of plants in the commit.
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

/** How long each waits for readers, in milliseconds. Plants wait meanwhile. */
const WAIT_MS = { inline: 0, blocking: 100 } as const;

/** From https://www.sqlite.org/fileformat2.html#the_write_ahead_log, in bytes. */
const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** How many plants are stored between two measurements of the WAL, without a background thread. */
const MEASURED_PLANTS = 1_000;
