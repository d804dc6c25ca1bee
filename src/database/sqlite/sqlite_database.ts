import { ADD_SHARE } from "../adapter.ts";
import { type Database, keysetPages } from "../database.ts";
import type { Client } from "./bun_driver.ts";
import { checkpointer, type CheckpointerOptions, checkpointMetrics } from "./checkpoint.ts";
import { retryWhileLocked } from "./driver.ts";
import { CorruptError, isLocked } from "./errors.ts";
import { sameFilesCheck } from "./files.ts";
import { closeWithoutCheckpoint, failStopOf } from "./markers.ts";
import { BUSY_TIMEOUT_MS } from "./opening.ts";
import { addPlants, readPage } from "./pages.ts";
import { type SqliteTokens, sqliteTokens } from "./tokens.ts";

/** A SQLite database on this thread. */
export interface SqliteDatabase extends Database {
  readonly tokens: SqliteTokens;
  /** Marks the file as corrupt, and fails the database. */
  reportCorruption(finding: string): void;
}

/** Options of {@linkcode sqliteDatabase}. */
export interface SqliteDatabaseOptions extends CheckpointerOptions {
  /**
   * How long calls other than `add` wait for the lock of another process, in milliseconds.
   *
   * @default {BUSY_TIMEOUT_MS}
   */
  readonly busyTimeoutMs?: number;
}

/**
 * The database of a connection that may write. Disposing of it closes the connection. Every call
 * blocks the thread until the disk responds, but not while another process holds the lock.
 *
 * After a failed fsync every call fails, for good: the page cache differs from the disk. The same
 * is true once this process or another finds the file corrupt: then it is marked, and nothing
 * writes to it.
 */
export function sqliteDatabase(
  client: Client,
  options: SqliteDatabaseOptions = {},
): SqliteDatabase {
  const { busyTimeoutMs = BUSY_TIMEOUT_MS, checkpointWorker: worker } = options;
  const requireSameFiles = sameFilesCheck(client.filename);

  const { promise: failed, resolve: resolveFailed } = Promise.withResolvers<Error>();
  const failStop = failStopOf(client, async (failure) => {
    await worker?.close();
    resolveFailed(failure);
  });
  void worker?.failed.then(failStop.fail);

  const setBusyTimeout = busyTimeoutOf(client);
  const checkpoint = checkpointer(client, failStop, setBusyTimeout, options);
  const addAll = addPlants(client);
  const pageFrom = readPage(client);

  /** Runs a call, which may wait in SQLite for a lock for so long. */
  function run<Result>(call: () => Result, timeoutMs: number): Result {
    return failStop.run(() => {
      setBusyTimeout(timeoutMs);
      return call();
    });
  }

  /** While another process holds the lock, a server can still read which tokens are revoked. */
  async function write<Result>(call: () => Result, timeoutMs = busyTimeoutMs): Promise<Result> {
    const result = await retryWhileLocked(() => run(call, 0), isLocked, timeoutMs);
    requireSameFiles();
    checkpoint.schedule();
    return result;
  }

  return {
    plants: {
      add: (plants, { timeoutMs }) => write(() => addAll(plants), timeoutMs * ADD_SHARE),
      // Commits a page, as adding a plant does. SQLite leaves this version to applications, and
      // this one has no use for it.
      probe: () => write(() => void client.run("PRAGMA user_version = 0")),
    },

    tokens: sqliteTokens(client, { read: (call) => run(call, busyTimeoutMs), write }),
    reportCorruption: (finding) => void failStop.report(new CorruptError(finding)),
    pages: () => keysetPages(pageFrom),
    metrics: () => checkpointMetrics(client.filename, checkpoint.failures()),
    failed,

    async [Symbol.asyncDispose]() {
      checkpoint.cancel();
      await worker?.close();
      if (!failStop.isFailed()) failStop.run(() => checkpointAndClose(client));
    },
  };
}

/** Sets SQLite's busy timeout for the next call, if it differs from that of the last one. */
function busyTimeoutOf(client: Client): (timeoutMs: number) => void {
  let current: number | undefined;
  return (timeoutMs) => {
    const rounded = Math.round(timeoutMs);
    if (rounded !== current) client.run(`PRAGMA busy_timeout = ${rounded}`);
    current = rounded;
  };
}

/**
 * Moves the WAL into the database, which leaves one file, and throws if that fails. If another
 * process uses the database, that one does it.
 */
function checkpointAndClose(client: Client): void {
  client.run("PRAGMA busy_timeout = 0");
  try {
    client.run("PRAGMA wal_checkpoint(TRUNCATE)");
  } catch (error) {
    closeWithoutCheckpoint(client);
    throw error;
  }
  client.close(true);
}
