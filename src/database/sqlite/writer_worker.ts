// The Worker that holds the connection which writes: it may hang in an fsync, and the server's own
// thread may not.
import { scheduleCheck, startBackground } from "./background.ts";
import { connect } from "./bun_driver.ts";
import { type SqliteDatabase, sqliteDatabase } from "./sqlite_database.ts";
import type { SqliteTokens } from "./tokens.ts";
import {
  decodeBatch,
  emit,
  reportFailure,
  type SerializedError,
  serializeError,
  serveCalls,
} from "./worker_calls.ts";

/**
 * How long a probe, or a call for tokens, waits for the lock of another process, in milliseconds.
 */
const SERVER_BUSY_TIMEOUT_MS = 1_000;

/** An event of this Worker, for the log. */
export type WriterEvent =
  | { readonly type: "checkpoint failed"; readonly error: SerializedError }
  | { readonly type: "warning"; readonly message: string; readonly reason: string }
  | {
      readonly type: "info";
      readonly message: string;
      readonly properties: Record<string, unknown>;
    };

const tell = (event: WriterEvent) => emit(event);

let database: SqliteDatabase;

type Args<Method extends keyof SqliteTokens> = Parameters<SqliteTokens[Method]>;

const WAL_IN_USE = "Another process reads the WAL, so this start could not begin a new one";
const WAL_ADVICE = "if it is Litestream, stop it before the server starts";

const api = {
  /**
   * Opens the database, and soon after lets the other Worker check the whole file. Called once,
   * before all other methods.
   *
   * @param walBytes Where to keep what the WAL holds.
   */
  async open(path: string, walBytes: SharedArrayBuffer): Promise<void> {
    // Starts while this thread connects, and before clients can take the file descriptors that the
    // Worker needs: Bun ends a process that has none for a new one.
    const background = startBackground();
    const onWalInUse = () => tell({ type: "warning", message: WAL_IN_USE, reason: WAL_ADVICE });
    const client = connect(path, { resetsWal: true, onWalInUse });
    const ready = background.open(path);

    database = sqliteDatabase(client, {
      lockTimeoutMs: SERVER_BUSY_TIMEOUT_MS,
      walBytes: new Float64Array(walBytes),
      background,
      onCheckpointFailed: (error) =>
        tell({ type: "checkpoint failed", error: serializeError(error) }),
    });
    await ready;
    void database.failed.then(reportFailure);

    scheduleCheck(background, path, {
      onInfo: (message, properties) => tell({ type: "info", message, properties }),
      onWarning: (message, reason) => tell({ type: "warning", message, reason }),
      onCorrupt: database.reportCorruption,
    });
  },
  probe: () => database.plants.probe(),
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
  return JSON.stringify(await database.plants.add(plants, { timeoutMs }));
});
