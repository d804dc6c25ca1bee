import { withDeadline } from "../../async/deadline.ts";
import type { DatabaseMetric } from "../database.ts";
import type { Client } from "./bun_driver.ts";
import type { CheckpointApi } from "./checkpoint_worker.ts";
import { walBytes } from "./files.ts";
import type { FailStop } from "./markers.ts";
import { workerCalls } from "./worker_calls.ts";

/**
 * At how many pages each kind of checkpoint was last begun; 0 if there was none since the WAL began
 * anew.
 */
export type LastCheckpoints = Readonly<Record<"pass" | "reset" | "restart", number>>;

/**
 * What to do after a commit. Each kind moves pages from the WAL into the database:
 *
 * - `pass`: a PASSIVE checkpoint on the Worker's own connection, from 1,000 new pages on. It blocks
 *   nobody. SQLite restarts the WAL only if a commit finds every page of it in the database. Under
 *   load, newer pages keep coming.
 * - `reset`: a PASSIVE checkpoint on the writer's thread, between two batches, from 4,000 pages on
 *   and only for the last 200. Plants wait a moment, and the next commit begins the WAL anew.
 * - `restart`: a RESTART checkpoint on the writer's thread, from 16,000 pages on. It is for several
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
const RESTART_PAGES = 4 * PAGES;

/**
 * How long that waits for readers, in milliseconds: a backup in progress holds the WAL, and plants
 * wait.
 */
const RESTART_TIMEOUT_MS = 100;

/**
 * Decides what to do. What a reader blocks, such as a backup, is tried again when more pages have
 * come.
 *
 * @param pages How many pages the WAL has.
 * @param left How many of them are not in the database yet.
 */
export function nextCheckpoint(pages: number, left: number, last: LastCheckpoints): Checkpoint {
  if (pages >= RESTART_PAGES && pages - last.restart >= PAGES) return "restart";
  if (pages >= PAGES && left <= FEW_PAGES && pages - last.reset >= PASS_PAGES) return "reset";
  const due = pages >= PAGES ? FEW_PAGES : PASS_PAGES;
  return left > due && pages - last.pass > due ? "pass" : "none";
}

const NEVER: LastCheckpoints = { pass: 0, reset: 0, restart: 0 };

/** Options of {@linkcode checkpointer}. */
export interface CheckpointerOptions {
  /**
   * Called when a checkpoint failed, for example without space: the WAL grows until one succeeds.
   *
   * @default does nothing
   */
  readonly onCheckpointFailed?: (error: Error) => void;
  /**
   * Makes checkpoints on another thread, and is closed with the database. @default this thread
   * makes them
   */
  readonly checkpointWorker?: CheckpointWorker;
}

/**
 * Makes the checkpoints of a connection that has `wal_autocheckpoint` off: SQLite's own one hides a
 * failed fsync, and holds up the commit that made it due.
 *
 * @param setBusyTimeout Sets how long the next statement waits for a lock, in milliseconds.
 */
export function checkpointer(
  client: Client,
  failStop: FailStop,
  setBusyTimeout: (timeoutMs: number) => void,
  { checkpointWorker: worker, onCheckpointFailed }: CheckpointerOptions,
) {
  const measure = client.prepare("PRAGMA wal_checkpoint(NOOP)");
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  const restart = client.prepare("PRAGMA wal_checkpoint(RESTART)");

  let scheduled: NodeJS.Immediate | undefined;
  let failures = 0;
  let isPassing = false;
  let last = NEVER;
  /** How many pages the WAL had at the last look. */
  let lastPages = 0;

  /** A failed fsync has also failed the whole database by then. */
  function countFailure(error: unknown): void {
    failures++;
    onCheckpointFailed?.(error as Error);
  }

  const steps = {
    pass() {
      isPassing = true;
      const end = () => (isPassing = false);
      worker?.pass().catch(countFailure).finally(end);
    },
    reset: () => void passive.values(),
    restart() {
      setBusyTimeout(RESTART_TIMEOUT_MS);
      restart.values();
    },
  };

  function checkpoint(): void {
    // SQLite allows one checkpoint at a time.
    if (isPassing) return;

    const [[, inWal, moved] = []] = measure.values();
    const pages = Number(inWal);
    // Without a Worker this thread moves all pages: none are left for a pass.
    const left = worker === undefined ? 0 : pages - Number(moved);

    // The WAL began anew.
    if (pages < lastPages) last = NEVER;
    lastPages = pages;

    const next = nextCheckpoint(pages, left, last);
    if (next === "none") return;

    last = { ...last, [next]: pages };
    steps[next]();
  }

  function now(): void {
    scheduled = undefined;
    try {
      failStop.run(checkpoint);
    } catch (error) {
      countFailure(error);
    }
  }

  return {
    /** To be called after a commit: looks, once the response to it has left, whether one is due. */
    schedule: () => void (scheduled ??= setImmediate(now)),
    cancel: () => clearImmediate(scheduled),
    /** How many failed so far. */
    failures: () => failures,
  };
}

/** How long closing the Worker's connection may take, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1_000;

/** A Worker with a connection of its own that moves pages from the WAL into the database. */
export type CheckpointWorker = ReturnType<typeof startCheckpointWorker>;

/** Starts the Worker, which ends with the one that starts it. */
export function startCheckpointWorker() {
  const worker = new Worker(new URL("./checkpoint_worker.js", import.meta.url));
  const { call, failed, terminate } = workerCalls<CheckpointApi>(worker);
  let closed: Promise<void> | undefined;

  async function close(): Promise<void> {
    // After a crash there is nothing to close.
    await withDeadline(call("close"), CLOSE_TIMEOUT_MS, () => {}).catch(() => {});
    terminate();
  }

  return {
    /** Opens a database that another connection of this process has open for writing. */
    open: (path: string) => call("open", path),
    /**
     * Moves what is in the WAL now. Can be tried again after a failure, unless `failed` resolves.
     */
    pass: () => call("pass"),
    /**
     * Closes the connection, without a checkpoint. Resolves after a second even if the disk hangs.
     */
    close: () => (closed ??= close()),
    /**
     * Resolves after a failed fsync, corruption, or a crash of the Worker. The connection is closed
     * then.
     */
    failed,
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
