import { backoffMs, pause, withDeadline } from "../../async/timers.ts";
import type { PlantStoreError } from "../../errors.ts";
import type { AddOutcome, PlantStore } from "../../group_commit/plant_store.ts";
import { type NewPlant, PLANT_FIELDS, samePlant } from "../../plant/plant.ts";
import { checkpointer, type CheckpointThread } from "./checkpoint.ts";
import type { PlantRows, SqliteConnection } from "./driver.ts";
import {
  CorruptError,
  corruptionIn,
  isFailedSync,
  isLocked,
  storageUnavailable,
  toFileError,
  toPlantStoreError,
} from "./errors.ts";
import { type Loss, watchFiles } from "./file_identity.ts";
import { corruptionMarker, markUnsynced } from "./markers.ts";
import { databaseFile } from "./path.ts";
import { saveFile, type Saving } from "./saved_file.ts";
import { watchLock } from "./shared_lock.ts";
import { guardWal } from "./wal.ts";

/**
 * Stores plants in SQLite through one connection, of either driver. A call blocks the thread while
 * it waits for the disk, but not while another process holds the lock.
 *
 * A store that has failed or is closed stays unusable. Three faults make it fail:
 *
 * - a failed fsync: the page cache differs from the disk;
 * - corruption: nothing may write to a corrupt file;
 * - the loss of its files, or of its lock on them.
 *
 * A failed store closes its connections and leaves the file and its WAL as they are. Disposing of a
 * store stops its background thread, then closes the store.
 */
interface Store extends PlantStore, AsyncDisposable {
  /** Runs a statement that only reads. */
  read<Result>(call: () => Result): Result;
  /** Runs a statement that writes, and commits it. */
  write<Result>(call: () => Result): Promise<Result>;
  /** Marks the file as corrupt, and fails. */
  reportCorruption(finding: string): void;
  /** Resolves with the cause once the store has failed. Never rejects. */
  readonly failed: Promise<Error>;
  /**
   * Moves the WAL into the database file, removes the WAL, and closes the database.
   *
   * @throws {PlantStoreError} If the WAL cannot be moved: it stays, and nothing is lost. Also if the
   *   files were removed or replaced: the message says where their content was saved.
   */
  close(): void;
}

/** Options of {@linkcode openStore}. */
export interface StoreOptions {
  /** The driver's statements for plants. */
  readonly statements: PlantRows;

  /** How long calls other than `add` wait for the lock of another process, in milliseconds. */
  readonly lockTimeoutMs: number;

  /** Runs checkpoints on another thread. @default this thread runs them */
  readonly background?: CheckpointThread | undefined;

  /**
   * Whether the process also runs other code, which may open and close the database file.
   *
   * @default {false}
   */
  readonly sharesProcess?: boolean | undefined;

  /** Receives the size of the WAL's content, in bytes. Shared with the thread that reports it. */
  readonly walBytes: Float64Array;

  /**
   * Called when a checkpoint fails, for example on a full disk. The WAL grows until one succeeds.
   *
   * @default does nothing
   */
  readonly onCheckpointFailed?: ((error: Error) => void) | undefined;

  /** How to save the database if its files were removed or replaced. @default saves nothing */
  readonly saving?: Saving | undefined;
}

/**
 * Opens a store over a connection, and closes the connection if that fails.
 *
 * @throws {DatabaseError} If the files beside the database cannot be opened.
 */
export function openStore(
  connection: SqliteConnection,
  {
    statements,
    lockTimeoutMs,
    background,
    sharesProcess = false,
    walBytes,
    onCheckpointFailed,
    saving,
  }: StoreOptions,
): Store {
  const { promise: failed, resolve: resolveFailed } = Promise.withResolvers<Error>();
  const { file, marker, lookAtFiles, walGuard } = prepare(connection);
  const lock = sharesProcess ? watchLock(connection.filename) : undefined;

  /** Set once no call may reach SQLite any more. */
  let end: { readonly failure: unknown } | "closed" | undefined;
  let busyTimeoutMs: number | undefined;

  /**
   * Runs a call and commits it. A commit makes these system calls:
   *
   *     access            is there a corruption marker?
   *     stat × 4          are the files still at their paths?
   *     pwrite64 × n      append the changed pages to the WAL
   *     fdatasync(wal)    because of synchronous=FULL
   *     stat × 4          are the files still at their paths?
   *     pread             is the lock still ours? (if other code runs in this process)
   *     [200]
   *
   * After a power loss during `fdatasync`, all of the transaction is stored or none of it: the client
   * has had no response. After `fdatasync`, all of it is stored.
   *
   * BUG: a disk that reports an fsync as done, but loses the data, loses acknowledged plants.
   */
  async function commit<Result>(
    call: () => Result,
    timeoutMs: number,
    plants = 1,
  ): Promise<Result> {
    // If files were removed or replaced, another process may use the new ones with the same WAL: do not
    // overwrite its plants there.
    const checkedCall = () => {
      requireNoLoss();
      return call();
    };

    // Not final: another process holds the lock. Nothing was written, so this retries until the timeout.
    // Not final: the disk is full or read-only, or a write fails. SQLite has rolled back.
    // Final: a failed fsync, or corruption. Only the next process can find out what is stored.
    const result = await retryWhileLocked(() => run(checkedCall, 0), timeoutMs);

    // The commit is on the disk, but perhaps in a file that is no longer at its path.
    // BUG: files can be replaced after this check, before the client has the response.
    requireNoLoss();

    // ======== FROM HERE A 200 IS TRUE ========

    checkpoints.schedule(plants);
    return result;
  }

  /**
   * Requires that the files are still at their paths, and that the lock is held. A missing file may come
   * back, and a retry then succeeds. After any other loss, fails the store.
   */
  function requireNoLoss(): void {
    const loss = lookAtFiles() ?? lock?.look();
    if (loss === undefined) return;

    const isFinal = loss.lost !== "file";
    const error = gone(loss, { isEnd: isFinal });
    if (isFinal) fail(error);
    throw error;
  }

  /**
   * Runs a call to SQLite.
   *
   * @param timeoutMs SQLite's busy timeout, in milliseconds. Waiting for a lock blocks the thread.
   * @throws {PlantStoreError} `storage_unavailable` if the storage cannot be used.
   */
  function run<Result>(call: () => Result, timeoutMs: number): Result {
    if (end === "closed")
      throw storageUnavailable("storage is closed", new Error("the store is closed"));
    if (end !== undefined) throw end.failure;

    try {
      // Another process may have found the file to be corrupt.
      const finding = marker.finding();
      if (finding !== undefined) throw new CorruptError(finding);

      setBusyTimeout(timeoutMs);
      return call();
    } catch (error) {
      throw settle(error);
    }
  }

  function setBusyTimeout(timeoutMs: number): void {
    if (timeoutMs === busyTimeoutMs) return;
    connection.exec(`PRAGMA busy_timeout = ${timeoutMs}`);
    busyTimeoutMs = timeoutMs;
  }

  /**
   * Translates an error of SQLite, of a check or of the background thread. If the error is final, marks
   * the file and fails the store.
   */
  function settle(error: unknown): unknown {
    const translated = toPlantStoreError(error);
    const finding = corruptionIn(error);
    const isUnsynced = isFailedSync(error);

    // Every later process must know: a server, a command, or another program's store.
    if (finding !== undefined) marker.write(finding);
    if (isUnsynced) markUnsynced(file);

    if (finding !== undefined || isUnsynced) fail(translated);
    return translated;
  }

  /** Returns the error for lost files. If the store is about to end, saves the database first. */
  function gone(loss: Loss, { isEnd }: { readonly isEnd: boolean }): PlantStoreError {
    const reason =
      isEnd && saving !== undefined ? saveFile(connection, file, loss, saving) : loss.reason;
    return storageUnavailable("storage is gone", new Error(reason));
  }

  /** Fails the store for good. Afterwards it never reads or writes the WAL. */
  function fail(failure: unknown): void {
    if (end !== undefined) return;
    end = { failure };
    closeConnection();

    const tell = () => resolveFailed(failure as Error);
    // The background thread may hang, and close its connection at any later time: keep the guard open.
    if (background !== undefined)
      return void withDeadline(background.close(), CLOSE_TIMEOUT_MS, () => {}).then(tell, tell);
    walGuard[Symbol.dispose]();
    tell();
  }

  function closeConnection(): void {
    lock?.[Symbol.dispose]();
    connection[Symbol.dispose]();
  }

  const checkpoints = checkpointer({
    connection,
    background,
    walBytes,
    run,
    settle,
    isOpen: () => end === undefined,
    onFailed: onCheckpointFailed,
  });
  void background?.failed.then(fail);

  const addAll = connection.transaction((plants: readonly NewPlant[]) =>
    plants.map((plant) => addPlant(statements, plant)),
  );

  function close(): void {
    if (end !== undefined) return;
    const loss = saving && lookAtFiles();
    let error: unknown = loss && gone(loss, { isEnd: true });

    try {
      // A file that was only moved gets its WAL. After any other loss, another process may use the WAL or
      // the file that is there now.
      if (loss === undefined || loss.lost === "file")
        run(() => void connection.query("PRAGMA wal_checkpoint(TRUNCATE)").all(), 0);
    } catch (failure) {
      error ??= failure;
    }

    if (end === undefined) {
      end = "closed";
      // The last connection of any process removes the empty WAL. After an error keep the WAL: it may
      // hold plants, or belong to another database by now.
      if (error === undefined) walGuard[Symbol.dispose]();
      closeConnection();
      if (error !== undefined) walGuard[Symbol.dispose]();
    }
    if (error !== undefined) throw error;
  }

  return {
    add: (plants, { timeoutMs }) =>
      commit(() => addAll.immediate(plants), timeoutMs, plants.length),
    probe: () => commit(() => PROBE.forEach((sql) => connection.query(sql).all()), lockTimeoutMs),
    read: (call) => run(call, lockTimeoutMs),
    write: (call) => commit(call, lockTimeoutMs),
    reportCorruption: (finding) => void settle(new CorruptError(finding)),

    failed,
    close,

    async [Symbol.asyncDispose]() {
      // Wait even for a disk that hangs. Otherwise the background connection would close last, and
      // SQLite's own checkpoint would hide a failed fsync.
      await background?.close();
      close();
      // Report a failure first, even one during the stop.
      if (end !== "closed") await failed;
    },
  };
}

/**
 * The statements of a probe. The first names each column, because a newer build may have renamed one. It qualifies
 * the names: SQLite reads an unknown name in double quotes as a string literal. The second commits a page, as adding
 * a plant does: `user_version`, which SQLite leaves to applications, is always 0 here.
 */
const PROBE = [
  `SELECT ${PLANT_FIELDS.map((field) => `plants."${field}"`).join(", ")} FROM plants LIMIT 0`,
  "PRAGMA user_version = 0",
];

/** Adds a plant, within a transaction. Never replaces the plant that has the id. */
export function addPlant({ insert, find }: PlantRows, plant: NewPlant): AddOutcome {
  if (insert(plant)) return "added";
  const stored = find(plant.id);
  return stored !== undefined && samePlant(stored, plant) ? "present" : "conflict";
}

/** How long a failed store waits for its background thread, which may hang, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1_000;

/** Opens the marker, the watch on the files and the WAL guard. If that fails, closes the connection. */
function prepare(connection: SqliteConnection) {
  let walGuard: SqliteConnection | undefined;

  try {
    const file = databaseFile(connection.filename);
    const marker = corruptionMarker(connection.filename);
    const lookAtFiles = watchFiles(connection.filename);

    // Open it now: after a failure the file may be gone, or the process out of descriptors.
    walGuard = connection.openReader();
    guardWal(walGuard);

    return { file, marker, lookAtFiles, walGuard };
  } catch (error) {
    walGuard?.[Symbol.dispose]();
    connection[Symbol.dispose]();
    throw toFileError("open", connection.filename, error);
  }
}

/**
 * Retries a call while another process holds the lock. Waiting inside SQLite would block the thread,
 * and with it every other call.
 *
 * @param timeoutMs How long to retry, in milliseconds. After that it throws the last error.
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

/** The longest pause between two attempts, in milliseconds. SQLite itself pauses for up to 100. */
const LONGEST_PAUSE_MS = 25;
