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
 * A connection that may write, and that may fail once: the one store of SQLite, over either driver.
 * Its calls block the thread until the disk responds, but not while another process holds the lock.
 *
 * Once it has failed or is closed, it never works again. Three things fail it:
 *
 * - a failed fsync: the page cache differs from the disk;
 * - corruption: nothing may write to a corrupt file;
 * - the loss of its files, or of its lock on them.
 *
 * A failed store closes its connections and leaves the file and its WAL as they are. Disposing of a
 * store ends its other thread, and closes it.
 */
interface Store extends PlantStore, AsyncDisposable {
  /** Runs a statement that only reads. */
  read<Result>(call: () => Result): Result;
  /** Commits a call that writes, in a transaction of its own. */
  write<Result>(call: () => Result): Promise<Result>;
  /** Marks the file as corrupt, and fails. */
  reportCorruption(finding: string): void;
  /** Resolves with the cause once the store has failed. Never rejects. */
  readonly failed: Promise<Error>;
  /**
   * Moves the WAL into the database, which leaves one file, and closes it.
   *
   * @throws {PlantStoreError} If the WAL cannot be moved: then nothing is lost, and it stays. If the
   *   files are gone, and were saved.
   */
  close(): void;
}

/** Options of {@linkcode openStore}. */
export interface StoreOptions {
  /** The statements for plants, of the driver. */
  readonly statements: PlantRows;

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

  /** How the store saves what it has of files that are gone, at its end. @default saves nothing */
  readonly saving?: Saving | undefined;
}

/**
 * Makes the store of a connection.
 *
 * @throws {DatabaseError} If it cannot: then the connection is closed.
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

  /** Why no call may reach SQLite any more. */
  let end: { readonly failure: unknown } | "closed" | undefined;
  let busyTimeoutMs: number | undefined;

  /**
   * Commits. The system calls of a commit, in their order:
   *
   *     access            no corruption marker
   *     pwrite64 × n      the changed pages, behind the end of the WAL
   *     fdatasync(wal)    because of synchronous=FULL
   *     stat × 4          the look: still the files at the paths
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
    // Not final: another process holds the lock. Nothing was written; tried again until the timeout.
    // Not final: a disk that is full, read-only or fails to write. SQLite has rolled back.
    // Final: a failed fsync, or corruption. What is stored then, the next process finds out.
    const result = await retryWhileLocked(() => run(call, 0), timeoutMs);

    // The commit is on the disk, but its paths may lead to other files by now. Final, unless the file
    // may come back: then the same plant sent again is `present`.
    // BUG: files that are replaced after this look, and before the client has the response.
    const loss = lookAtFiles() ?? lock?.look();
    if (loss !== undefined) {
      const isFinal = loss.lost !== "file";
      const error = gone(loss, { isEnd: isFinal });
      if (isFinal) fail(error);
      throw error;
    }

    // ======== FROM HERE A 200 IS TRUE ========

    checkpoints.schedule(plants);
    return result;
  }

  /**
   * Runs a call of SQLite.
   *
   * @param timeoutMs How long it may wait for a lock inside of SQLite, which blocks the thread.
   * @throws {PlantStoreError} `storage_unavailable` for a state of the storage.
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
   * Translates an error of SQLite, of a check or of the other thread. If it is final, marks the file and
   * fails the store.
   */
  function settle(error: unknown): unknown {
    const translated = toPlantStoreError(error);
    const finding = corruptionIn(error);
    const isUnsynced = isFailedSync(error);

    // The next process must know, whichever it is: a server, a command, another program's store.
    if (finding !== undefined) marker.write(finding);
    if (isUnsynced) markUnsynced(file);

    if (finding !== undefined || isUnsynced) fail(translated);
    return translated;
  }

  /** The error for a loss. At the end, first saves what only this process still has. */
  function gone(loss: Loss, { isEnd }: { readonly isEnd: boolean }): PlantStoreError {
    const reason =
      isEnd && saving !== undefined ? saveFile(connection, file, loss, saving) : loss.reason;
    return storageUnavailable("storage is gone", new Error(reason));
  }

  /** Fails the store for good. From then on nothing reads or writes the WAL. */
  function fail(failure: unknown): void {
    if (end !== undefined) return;
    end = { failure };
    closeConnection();

    const tell = () => resolveFailed(failure as Error);
    // The other thread may hang, and close its connection at any time later: so the guard stays.
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
      // A database whose WAL is gone may have another one by now, of another process.
      const isElsewhere = loss?.lost === "file" || loss?.lost === "replaced";
      if (loss === undefined || isElsewhere)
        run(() => void connection.query("PRAGMA wal_checkpoint(TRUNCATE)").all(), 0);
    } catch (failure) {
      error ??= failure;
    }

    if (end === undefined) {
      end = "closed";
      // The last connection removes the empty WAL. If another process uses the database, that one does.
      // After an error it stays: it may have plants, or be another database's by now.
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
      // Waits even for a disk that hangs. If this thread closed first, the other connection would be the
      // last one, and SQLite's own checkpoint would hide an fsync that fails there.
      await background?.close();
      close();
      // Whoever waits for a failure hears of it first, even of one during the stop.
      if (end !== "closed") await failed;
    },
  };
}

/**
 * What a probe runs. It names each column, which a newer build may have renamed; the table stands before the name,
 * because SQLite takes an unknown name in double quotes alone for a text. Then it commits a page, as adding a plant
 * does: `user_version` is a number of SQLite's for applications, and it is always 0 here.
 */
const PROBE = [
  `SELECT ${PLANT_FIELDS.map((field) => `plants."${field}"`).join(", ")} FROM plants LIMIT 0`,
  "PRAGMA user_version = 0",
];

/** Adds a plant, within a transaction: the first one under an id counts. */
export function addPlant({ insert, find }: PlantRows, plant: NewPlant): AddOutcome {
  if (insert(plant)) return "added";
  const stored = find(plant.id);
  return stored !== undefined && samePlant(stored, plant) ? "present" : "conflict";
}

/** How long a failed store waits for its other thread, which may hang, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1_000;

/** Opens and reads what a store needs. If that fails, closes the connection. */
function prepare(connection: SqliteConnection) {
  let walGuard: SqliteConnection | undefined;

  try {
    const file = databaseFile(connection.filename);
    const marker = corruptionMarker(connection.filename);
    const lookAtFiles = watchFiles(connection.filename);

    // Now: after a failure there may be no file, or no descriptor for it.
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
