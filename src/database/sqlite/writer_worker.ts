// The Worker that holds the connection: it may hang in an fsync, and the server's own thread may
// not.
import { startCheckpointWorker } from "./checkpoint.ts";
import { connect } from "./opening.ts";
import { type SqliteDatabase, sqliteDatabase } from "./sqlite_database.ts";
import type { SqliteTokens } from "./tokens.ts";
import { emit, reportFailure, serializeError, serveCalls } from "./worker_calls.ts";
import { decodeBatch, encodeOutcomes } from "./worker_messages.ts";

/**
 * How long a probe, or a call for tokens, waits for the lock of another process, in milliseconds.
 */
const SERVER_BUSY_TIMEOUT_MS = 1_000;

let database: SqliteDatabase;

type Args<Method extends keyof SqliteTokens> = Parameters<SqliteTokens[Method]>;

const api = {
  /** Opens the database. Called once, before all other methods. */
  async open(path: string): Promise<void> {
    // Starts while this thread connects, and before clients can take the file descriptors that the
    // Worker needs.
    const checkpointWorker = startCheckpointWorker();
    const client = connect(path, { resetsWal: true });
    const ready = checkpointWorker.open(path);

    database = sqliteDatabase(client, {
      busyTimeoutMs: SERVER_BUSY_TIMEOUT_MS,
      onCheckpointFailed: (error) => emit(serializeError(error)),
      checkpointWorker,
    });
    await ready;
    void database.failed.then(reportFailure);
  },
  probe: () => database.plants.probe(),
  reportCorruption: (finding: string) => database.reportCorruption(finding),
  close: () => database[Symbol.asyncDispose](),

  page: (...args: Args<"page">) => database.tokens.page(...args),
  revision: () => database.tokens.revision(),
  add: (...args: Args<"add">) => database.tokens.add(...args),
  revoke: (...args: Args<"revoke">) => database.tokens.revoke(...args),
  delete: (...args: Args<"delete">) => database.tokens.delete(...args),
  prune: (...args: Args<"prune">) => database.tokens.prune(...args),
  recordUses: (...args: Args<"recordUses">) => database.tokens.recordUses(...args),
};

/** The methods of this Worker. */
export type WorkerApi = typeof api;

serveCalls(api, async (batch) => {
  const { plants, timeoutMs } = decodeBatch(batch);
  return encodeOutcomes(await database.plants.add(plants, { timeoutMs }));
});
