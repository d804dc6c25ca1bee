// The Worker that holds the connection: it may hang in an fsync, and the server's own thread may
// not.
import { startCheckpointWorker } from "./checkpoint.ts";
import { connect } from "./connection.ts";
import { type SqliteDatabase, sqliteDatabase } from "./database.ts";
import { reportFailure, reportNews, serializeError, serveCalls } from "./worker_calls.ts";
import { decodeBatch, encodeOutcomes } from "./worker_messages.ts";

/** How long a probe, or a call for tokens, waits for the lock of another process, in milliseconds. */
const BUSY_TIMEOUT_MS = 1_000;

let database: SqliteDatabase;

async function open(path: string): Promise<void> {
  // It starts while this thread connects, and before clients can take the file descriptors that it
  // needs.
  const checkpointWorker = startCheckpointWorker();
  const client = connect(path, { resetsWal: true });
  const ready = checkpointWorker.open(path);
  database = sqliteDatabase(client, {
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    onCheckpointFailed: (error) => reportNews(serializeError(error)),
    checkpointWorker,
  });
  await ready;
  void database.failed.then(reportFailure);
  Object.assign(api, methodsOf(database));
}

function methodsOf(opened: SqliteDatabase) {
  return {
    ...opened.tokens,
    probe: opened.plants.probe,
    reportCorruption: opened.reportCorruption,
    close: () => opened[Symbol.asyncDispose](),
  };
}

const api = { open };

/** The methods of this Worker. `open` is called first. */
export type WorkerApi = typeof api & ReturnType<typeof methodsOf>;

serveCalls(api, async (batch) => {
  const { plants, timeoutMs } = decodeBatch(batch);
  return encodeOutcomes(await database.plants.add(plants, { timeoutMs }));
});
