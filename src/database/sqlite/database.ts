import type { Database as Client } from "bun:sqlite";
import { ADD_SHARE } from "../adapter.ts";
import { type Database, keysetPages } from "../database.ts";
import { checkpointer, checkpointMetrics, type CheckpointWorker } from "./checkpoint.ts";
import { CorruptError } from "./errors.ts";
import { closeWithoutCheckpoint, failStopOf } from "./fail_stop.ts";
import { sameFilesCheck } from "./files.ts";
import { addPlants, readPage } from "./plants.ts";
import { readTokenPage, sqliteTokens, type TokenPage } from "./tokens.ts";

/** A SQLite database on this thread. */
export interface SqliteDatabase extends Database {
  /** A page of tokens, in the order of their rows, behind this one. */
  tokensAfter(row: bigint): TokenPage;
  /** Takes what a check found out: the file is corrupt. It is marked, and the database is failed. */
  reportCorruption(finding: string): void;
}

/** How a {@linkcode sqliteDatabase} behaves. */
export interface SqliteDatabaseOptions {
  /** How long calls other than `add` wait for another process's lock, in milliseconds. @default {5_000} */
  readonly busyTimeoutMs?: number;
  /** Called when a checkpoint failed; it is tried again: nothing is lost, and the WAL grows. @default does nothing */
  readonly onCheckpointFailed?: (error: Error) => void;
  /** Makes checkpoints beside this thread, and is closed with the database. @default this thread makes them */
  readonly checkpointWorker?: CheckpointWorker;
}

/**
 * The database behind a connection that may write, which it closes at its end. Every call is synchronous inside: it
 * holds the thread until the disk has responded.
 *
 * After a failed fsync every call fails, for good: the page cache is not what the disk holds. The same holds once the file is
 * found to be corrupt, here or by another process: then it is marked, and written to no more.
 */
export function sqliteDatabase(client: Client, options: SqliteDatabaseOptions = {}): SqliteDatabase {
  const { busyTimeoutMs = 5_000, onCheckpointFailed = () => {}, checkpointWorker: worker } = options;
  const requireSameFiles = sameFilesCheck(client.filename);
  const failStop = failStopOf(client, worker?.close);
  void worker?.failed.then(failStop.stop);
  const setBusyTimeout = busyTimeoutOf(client);
  const checkpoint = checkpointer(client, { failStop, setBusyTimeout, worker, onFailed: onCheckpointFailed });
  const [addAll, pageFrom, tokensAfter] = [addPlants(client), readPage(client), readTokenPage(client)];

  function run<Result>(call: () => Result, timeoutMs: number): Result {
    return failStop.run(() => {
      setBusyTimeout(timeoutMs);
      return call();
    });
  }

  const read = <Result>(call: () => Result) => run(call, busyTimeoutMs);

  function write<Result>(call: () => Result, timeoutMs = busyTimeoutMs): Result {
    const result = run(call, timeoutMs);
    requireSameFiles();
    checkpoint.schedule();
    return result;
  }

  return {
    plants: {
      add: async (plants, { timeoutMs }) => write(() => addAll(plants), timeoutMs * ADD_SHARE),
      // Setting the version that SQLite leaves to applications commits a page, as a plant does. It means nothing here.
      probe: async () => void write(() => client.run("PRAGMA user_version = 0")),
    },
    tokens: sqliteTokens(client, { read, write }),
    tokensAfter: (row) => read(() => tokensAfter(row)),
    reportCorruption: (finding) => void failStop.fail(new CorruptError(finding)),
    pages: () => keysetPages(pageFrom),
    metrics: () => checkpointMetrics(client.filename, checkpoint.failures()),
    failed: failStop.failed,
    async [Symbol.asyncDispose]() {
      checkpoint.cancel();
      await worker?.close();
      if (!failStop.isFailed()) failStop.run(() => checkpointAndClose(client));
    },
  };
}

/** Sets SQLite's busy timeout for the next call, if it differs from the last one's. */
function busyTimeoutOf(client: Client): (timeoutMs: number) => void {
  let current: number | undefined;
  return (timeoutMs) => {
    const rounded = Math.round(timeoutMs);
    if (rounded !== current) client.run(`PRAGMA busy_timeout = ${rounded}`);
    current = rounded;
  };
}

/**
 * Leaves one file: the WAL is moved into the database, and an error in doing so surfaces. If another process uses the
 * database, that one does it.
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
