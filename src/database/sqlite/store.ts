import { backoffMs, pause } from "../../async/timers.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { AddOutcome, PlantStore } from "../database.ts";
import { type LastCheckpoints, nextCheckpoint, NO_CHECKPOINTS } from "./checkpoint.ts";
import { type Connection, numberFrom } from "./driver.ts";
import { toDatabaseError } from "./errors.ts";
import {
  CorruptError,
  corruptionIn,
  corruptionMarker,
  isFailedSync,
  isLocked,
  markUnsynced,
  toPlantStoreError,
  unavailable,
} from "./failure.ts";
import { databaseFile } from "./files.ts";
import { watchFiles } from "./open_files.ts";
import { watchLock } from "./shared_lock.ts";

/**
 * A connection that may write, and that may fail once: the one store of SQLite, over either driver.
 * Its calls block the thread until the disk responds, but not while another process holds the lock.
 *
 * It works, then it has failed or is closed, and never works again. What fails it for good is a
 * failed fsync, because the page cache differs from the disk then; corruption, because nothing may
 * write to a corrupt file; and the loss of its files or of its lock. A failed store closes its
 * connections and leaves the file and its WAL as they are. Disposing of a store is to end its other
 * thread, and to close it.
 */
export interface Store extends PlantStore, AsyncDisposable {
  /** Runs a statement that only reads. */
  read<Result>(call: () => Result): Result;
  /** Commits a call that writes, in a transaction of its own. */
  write<Result>(call: () => Result): Promise<Result>;
  /** Marks the file as corrupt, and fails. */
  reportCorruption(finding: string): void;
  /** How many checkpoints failed so far. */
  checkpointFailures(): number;
  /** Resolves with the cause once the store has failed. Never rejects. */
  readonly failed: Promise<Error>;
  /**
   * Moves the WAL into the database, which leaves one file, and closes it.
   *
   * @throws {PlantStoreError} If the WAL cannot be moved: then nothing is lost, and it stays.
   */
  close(): void;
}

/** Options of {@linkcode storeOf}. */
export interface StoreOptions {
  /** Adds a plant, within a transaction. */
  readonly addPlant: (plant: NewPlant) => AddOutcome;
  /** How long calls other than `add` wait for the lock of another process, in milliseconds. */
  readonly lockTimeoutMs: number;
  /** Makes checkpoints on another thread. @default this thread makes them */
  readonly background?: CheckpointThread | undefined;
  /**
   * Whether other code runs in this process, which may open and close the database file.
   *
   * @default {false}
   */
  readonly sharesProcess?: boolean | undefined;
  /** Receives the size of the WAL's content, in bytes: another thread reads it. */
  readonly walBytes: Float64Array;
  /**
   * Called when a checkpoint failed, for example without space: the WAL grows until one succeeds.
   *
   * @default does nothing
   */
  readonly onCheckpointFailed?: ((error: Error) => void) | undefined;
}

/** Another thread with a connection of its own to the file. */
export interface CheckpointThread {
  /** Moves pages from the WAL into the database, and syncs it. */
  pass(): Promise<void>;
  /** Closes the connection, without a checkpoint. Resolves after a second even if the disk hangs. */
  close(): Promise<unknown>;
  /** Resolves if the thread crashes, which fails the store. */
  readonly failed: Promise<Error>;
}

/**
 * How long the `blocking` checkpoint waits for readers, in milliseconds: a backup in progress holds
 * the WAL, and plants wait.
 */
const BLOCKING_TIMEOUT_MS = 100;

/**
 * Makes the store of a connection.
 *
 * @throws {DatabaseError} If it cannot: then the connection is closed.
 */
export function storeOf(
  connection: Connection,
  {
    addPlant,
    lockTimeoutMs,
    background,
    sharesProcess = false,
    walBytes,
    onCheckpointFailed,
  }: StoreOptions,
): Store {
  const { promise: failed, resolve: resolveFailed } = Promise.withResolvers<Error>();
  const { file, marker, lookAtFiles, frameBytes, walGuard } = prepare(connection);
  const lock = sharesProcess ? watchLock(connection.filename) : undefined;

  /** Why no call may reach SQLite any more. */
  let end: { readonly failure: unknown } | "closed" | undefined;
  let busyTimeoutMs: number | undefined;

  /**
   * Commits. The system calls of a commit, in their order:
   *
   *     access            no corruption marker
   *     pwrite64 × n      the changed pages, behind the end of the WAL
   *     fdatasync(wal)    because of synchronous=FULL
   *     stat × 2          the look: still the files at the paths
   *     pread             and still our lock, if other code runs in this process
   *     [200]
   *
   * A power loss before the end of `fdatasync` stores all of the transaction or nothing, and the
   * client was told nothing. After it, all of it is stored.
   *
   * BUG: a disk that acknowledges an fsync and loses it loses plants with a 200.
   */
  async function commit<Result>(
    call: () => Result,
    timeoutMs: number,
    plants = 1,
  ): Promise<Result> {
    // Not final: another process holds the lock, and nothing was written. Tried again until the
    // timeout.
    // Not final: a disk that is full, read-only or fails to write, or a lack of memory. SQLite has
    // rolled back, nothing is stored, and the next commit can succeed.
    // Final: a failed fsync, or corruption. What is stored, the next process finds out. `refuse`
    // marks it for that process.
    const result = await retryWhileLocked(() => run(call, 0), timeoutMs);

    // On the disk by now, but perhaps in files that nobody opens again. Final, unless the file may
    // come back: then the same plant sent again is `present`.
    // BUG: files that are replaced after this look, and before the client has the response.
    const loss = lookAtFiles() ?? lock?.look();
    if (loss !== undefined) {
      const error = unavailable("storage is gone", new Error(loss.reason));
      if (loss.isFinal) fail(error);
      throw error;
    }

    // ======== FROM HERE A 200 IS TRUE ========

    written += plants;
    scheduleLook();
    return result;
  }

  /**
   * Runs a call of SQLite.
   *
   * @param timeoutMs How long it may wait for a lock inside of SQLite, which blocks the thread.
   * @throws {PlantStoreError} `storage_unavailable` for a state of the storage.
   */
  function run<Result>(call: () => Result, timeoutMs: number): Result {
    if (end === "closed") throw unavailable("storage is closed", new Error("the store is closed"));
    if (end !== undefined) throw end.failure;

    try {
      // Another process may have found the file to be corrupt.
      const finding = marker.finding();
      if (finding !== undefined) throw new CorruptError(finding);

      setBusyTimeout(timeoutMs);
      return call();
    } catch (error) {
      throw refuse(error);
    }
  }

  function setBusyTimeout(timeoutMs: number): void {
    if (timeoutMs === busyTimeoutMs) return;
    connection.exec(`PRAGMA busy_timeout = ${timeoutMs}`);
    busyTimeoutMs = timeoutMs;
  }

  /** Decides what an error of SQLite, of a check or of the other thread means. */
  function refuse(error: unknown): unknown {
    const translated = toPlantStoreError(error);
    const finding = corruptionIn(error);
    const isUnsynced = isFailedSync(error);

    // The next process must know, whichever it is: a server, a command, another program's store.
    if (finding !== undefined) marker.write(finding);
    if (isUnsynced) markUnsynced(file);

    if (finding !== undefined || isUnsynced) fail(translated);
    return translated;
  }

  /** Ends all calls, for good. Nothing moves out of the WAL any more, nor into it. */
  function fail(failure: unknown): void {
    if (end !== undefined) return;
    end = { failure };
    closeConnection();

    const tell = () => resolveFailed(failure as Error);
    // The other thread may hang, and close its connection at any time later: so the guard stays.
    if (background !== undefined) return void background.close().then(tell, tell);
    walGuard[Symbol.dispose]();
    tell();
  }

  function closeConnection(): void {
    lock?.[Symbol.dispose]();
    connection[Symbol.dispose]();
  }

  let isScheduled = false;
  let last = NO_CHECKPOINTS;
  let isPassing = false;
  let failures = 0;
  /** How many plants were written since the last look at the WAL: with random ids a page each. */
  let written = 0;
  /** How many pages the WAL had at the last look. */
  let walPages = 0;

  /**
   * Looks at the WAL once the response to a commit has left, and makes the checkpoint that is due.
   * `wal_autocheckpoint` is off: SQLite's own checkpoint hides a failed fsync, and holds up the
   * commit that made it due.
   */
  function scheduleLook(): void {
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(lookAtWal);
  }

  function lookAtWal(): void {
    isScheduled = false;
    // SQLite allows one checkpoint at a time.
    if (isPassing || end !== undefined) return;
    // Without a thread for passes only a full WAL matters, and SQLite before 3.51 has no NOOP: it
    // makes a PASSIVE checkpoint of it.
    if (background === undefined && written < LOOK_PLANTS) return;

    try {
      run(checkpoint, 0);
    } catch (error) {
      countFailure(error);
    }
  }

  function checkpoint(): void {
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
    if (next === "none") return;
    last = { ...last, [next]: pages } satisfies LastCheckpoints;

    if (next === "background") passInBackground();
    else if (next === "inline") connection.query("PRAGMA wal_checkpoint(PASSIVE)").all();
    else {
      setBusyTimeout(BLOCKING_TIMEOUT_MS);
      connection.query("PRAGMA wal_checkpoint(RESTART)").all();
    }
  }

  function passInBackground(): void {
    isPassing = true;
    background
      ?.pass()
      // No checkpoint comes between the failure and this: a second fsync would hide the first.
      .catch((error: unknown) => countFailure(end === undefined ? refuse(error) : error))
      .finally(() => (isPassing = false));
  }

  /** A failed fsync has also failed the whole store by then. */
  function countFailure(error: unknown): void {
    failures++;
    onCheckpointFailed?.(error as Error);
  }

  void background?.failed.then(fail);

  const addAll = connection.transaction((plants: readonly NewPlant[]) => plants.map(addPlant));

  function close(): void {
    if (end !== undefined) return;

    try {
      run(() => void connection.query("PRAGMA wal_checkpoint(TRUNCATE)").all(), 0);
    } catch (error) {
      if (end === undefined) {
        end = "closed";
        closeConnection();
        walGuard[Symbol.dispose]();
      }
      throw error;
    }

    end = "closed";
    // The last connection removes the empty WAL. If another process uses the database, that one does.
    walGuard[Symbol.dispose]();
    closeConnection();
  }

  return {
    add: (plants, { timeoutMs }) =>
      commit(() => addAll.immediate(plants), timeoutMs, plants.length),
    // Commits a page, as adding a plant does. SQLite leaves this version to applications, and this
    // one has no use for it.
    probe: () =>
      commit(() => void connection.query("PRAGMA user_version = 0").all(), lockTimeoutMs),
    read: (call) => run(call, lockTimeoutMs),
    write: (call) => commit(call, lockTimeoutMs),
    reportCorruption: (finding) => void refuse(new CorruptError(finding)),

    checkpointFailures: () => failures,
    failed,
    close,

    async [Symbol.asyncDispose]() {
      await background?.close();
      close();
    },
  };
}

/** Opens and reads what a store needs. If that fails, closes the connection. */
function prepare(connection: Connection) {
  let walGuard: Connection | undefined;

  try {
    const file = databaseFile(connection.filename);
    const marker = corruptionMarker(connection.filename);
    const lookAtFiles = watchFiles(connection.filename);
    const frameBytes = numberFrom(connection, "PRAGMA page_size") + FRAME_HEADER_BYTES;

    // Keeps SQLite from the checkpoint that the last connection to close makes, and which no setting
    // of the drivers prevents: after a failed fsync the WAL in the page cache is not on the disk, and
    // nothing may write to a corrupt file. That checkpoint needs an exclusive lock, which SQLite does
    // not give while another connection of the process is open. This one only reads, and makes none
    // itself. It is open from the start: after a failure there may be no file to open, or no
    // descriptor for it.
    walGuard = connection.openReader();
    // The first read takes the shared lock, which a connection to a WAL keeps.
    walGuard.query("PRAGMA application_id").all();

    return { file, marker, lookAtFiles, frameBytes, walGuard };
  } catch (error) {
    walGuard?.[Symbol.dispose]();
    connection[Symbol.dispose]();
    throw toDatabaseError("open", connection.filename, error);
  }
}

/**
 * Calls, and calls again while another process holds the lock. Waiting inside SQLite would block the
 * thread, and with it every other call.
 *
 * @param timeoutMs Then the last error is thrown.
 */
export async function retryWhileLocked<Result>(
  call: () => Result,
  timeoutMs: number,
): Promise<Result> {
  const deadline = performance.now() + timeoutMs;

  for (let attempt = 0; ; attempt++) {
    try {
      return call();
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
    }

    await pause(backoffMs(attempt, LONGEST_PAUSE_MS));
  }
}

/** How long to pause between two attempts, in milliseconds: SQLite itself looks every 100. */
const LONGEST_PAUSE_MS = 25;

/** From https://www.sqlite.org/fileformat2.html#the_write_ahead_log, in bytes. */
const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** After how many plants a store without another thread looks at the WAL. */
const LOOK_PLANTS = 1_000;
