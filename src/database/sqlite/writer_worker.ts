// The Worker with the connection that writes. It may hang in an fsync; the server's thread must not.
import type { DatabaseAccess } from "../adapter.ts";
import type { BackgroundApi, Checked } from "./background_worker.ts";
import { connect } from "./bun_driver.ts";
import { exclusiveLock } from "./exclusive_lock.ts";
import { identityOf } from "./file_identity.ts";
import { type SqliteDatabase, sqliteDatabase } from "./sqlite_database.ts";
import type { SqliteTokens } from "./tokens.ts";
import {
  decodeBatch,
  emit,
  reasonOfCall,
  reportFailure,
  type SerializedError,
  serializeError,
  serveCalls,
  startWorker,
} from "./worker_calls.ts";

/**
 * How long a probe or a token statement waits for the lock of another process, in milliseconds.
 */
const SERVER_BUSY_TIMEOUT_MS = 1_000;

/** The delay of the integrity check, in milliseconds, so that it does not slow down the start. */
const CHECK_DELAY_MS = 1_000;

/** An event of this Worker, for the log. */
export type WriterEvent =
  | { readonly type: "created" }
  | { readonly type: "checked" }
  | { readonly type: "checkpoint failed"; readonly error: SerializedError }
  | { readonly type: "warning"; readonly message: string; readonly reason: string }
  | {
      readonly type: "info";
      readonly message: string;
      readonly properties: Record<string, unknown>;
    };

const tell = (event: WriterEvent) => emit(event);
const info = (message: string, properties: Record<string, unknown> = {}) =>
  tell({ type: "info", message, properties });
const warn = (message: string, reason: string) => tell({ type: "warning", message, reason });

let database: SqliteDatabase;

type Args<Method extends keyof SqliteTokens> = Parameters<SqliteTokens[Method]>;

const WAL_IN_USE = "Another process reads the WAL, so this start could not begin a new one";
const WAL_ADVICE = "if it is Litestream, stop it before the server starts";

const FILES_ARE_GONE =
  "its files were removed or replaced while they were open: a kill now loses what is not in a backup";

const api = {
  /**
   * Opens the database, and soon after starts the integrity check in the background Worker. Called once,
   * before all other methods.
   *
   * @param walBytes Receives the size of the WAL's content, in bytes.
   */
  async open(path: string, access: DatabaseAccess, walBytes: SharedArrayBuffer): Promise<void> {
    // Start it now, before clients can use up the file descriptors: Bun ends the process if a new Worker
    // gets none.
    const { call, failed, terminate } = startWorker<BackgroundApi>("background");
    const client = connect(path, {
      access,
      resetsWal: true,
      onMigrated: (_, isNew) => isNew && tell({ type: "created" }),
      onWalInUse: () => warn(WAL_IN_USE, WAL_ADVICE),
      onWarning: (message, why) => warn(message, String(why?.reason)),
    });
    const ready = call("open", path);

    let closed: Promise<unknown> | undefined;
    // `call` rejects after a crash, when there is nothing to close.
    const close = () => call("close").then(terminate, () => {});

    database = sqliteDatabase(client, {
      lockTimeoutMs: SERVER_BUSY_TIMEOUT_MS,
      walBytes: new Float64Array(walBytes),
      background: { pass: () => call("pass"), close: () => (closed ??= close()), failed },
      onCheckpointFailed: (error) =>
        tell({ type: "checkpoint failed", error: serializeError(error) }),
      saving: {
        onSaving: (saved) => warn(`Saving the database to "${saved}"`, FILES_ARE_GONE),
        lock: (file) => exclusiveLock(file, file),
      },
    });
    await ready;
    void database.failed.then(reportFailure);

    // Later the path may have another file, or none.
    const identity = identityOf(path) ?? "";
    setTimeout(() => checkFile(() => call("check", path, identity)), CHECK_DELAY_MS).unref();
  },
  probe: () => database.plants.probe(),
  close: () => database[Symbol.asyncDispose](),

  page: (...args: Args<"page">) => database.tokens.page(...args),
  revision: () => database.tokens.revision(),
  add: (...args: Args<"add">) => database.tokens.add(...args),
  recordUses: (...args: Args<"recordUses">) => database.tokens.recordUses(...args),
};

/** The methods of this Worker. */
export type WorkerApi = typeof api;

serveCalls(api, async (batch) => {
  const { plants, timeoutMs } = decodeBatch(batch);
  return JSON.stringify(await database.plants.add(plants, { timeoutMs }));
});

/** Runs the integrity check, and reports its result. */
async function checkFile(check: () => Promise<Checked>): Promise<void> {
  const begin = performance.now();
  info("Integrity check started");

  try {
    const checked = await check();
    if (checked === undefined) return;
    if (checked.finding !== undefined) return database.reportCorruption(checked.finding);
    const durationMs = Math.round(performance.now() - begin);
    tell({ type: "checked" });
    info("Integrity check passed", { ...checked, durationMs });
  } catch (error) {
    warn("Integrity check not finished", reasonOfCall(error as Error));
  }
}
