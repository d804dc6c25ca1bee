// The Worker that holds the connection: it may hang in an fsync, the server's own thread may not.
import type { TokenStore } from "../../auth/token_store.ts";
import { startCheckpointWorker } from "./checkpoint.ts";
import { connect } from "./connection.ts";
import { type SqliteDatabase, sqliteDatabase } from "./database.ts";
import { directoryWarning } from "./files.ts";
import {
  type BatchMessage,
  decodeBatch,
  encodeOutcomes,
  encodeTokens,
  serializeError,
  type WorkerApi,
  type WorkerRequest,
  type WorkerResponse,
} from "./worker_messages.ts";

declare const self: Worker;

/** How long a probe, or a call for tokens, may block the plants behind it while another process has the lock. */
const BUSY_TIMEOUT_MS = 1_000;

let opened: SqliteDatabase | undefined;

async function open(path: string): Promise<string | undefined> {
  // It starts while this thread connects, and before clients can take the file descriptors that it needs.
  const checkpointWorker = startCheckpointWorker();
  const client = connect(path, { resetsWal: true });
  const ready = checkpointWorker.open(path);
  opened = sqliteDatabase(client, {
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    onCheckpointFailed: (error) => respond({ type: "checkpoint_failed", error: serializeError(error) }),
    checkpointWorker,
  });
  await ready;
  void opened.failed.then((error) => respond({ type: "failed", error: serializeError(error) }));
  return directoryWarning(path);
}

/** The requests come from our own thread, which opens first. */
const database = () => opened as SqliteDatabase;

const own: Omit<WorkerApi, keyof TokenStore> = {
  open,
  probe: () => database().plants.probe(),
  tokensAfter: async (row) => encodeTokens(database().tokensAfter(row)),
  reportCorruption: async (finding) => database().reportCorruption(finding),
  close: async () => database()[Symbol.asyncDispose](),
};

self.addEventListener("message", async ({ data: request }: MessageEvent<WorkerRequest | string>) => {
  respond(typeof request === "string" ? await addBatch(decodeBatch(request)) : await handle(request));
});

async function addBatch({ id, timeoutMs, plants }: BatchMessage): Promise<WorkerResponse | string> {
  try {
    return encodeOutcomes(id, await database().plants.add(plants, { timeoutMs }));
  } catch (error) {
    return { type: "error", id, error: serializeError(error) };
  }
}

async function handle({ id, method, args }: WorkerRequest): Promise<WorkerResponse> {
  try {
    const api = (method in own ? own : database().tokens) as WorkerApi;
    const call = api[method] as (...args: unknown[]) => Promise<unknown>;
    return { type: "result", id, result: await call(...args) };
  } catch (error) {
    return { type: "error", id, error: serializeError(error) };
  }
}

function respond(message: WorkerResponse | string): void {
  self.postMessage(message);
}
