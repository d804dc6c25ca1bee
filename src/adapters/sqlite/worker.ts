// The Worker that holds the connection: it may hang in an fsync, the server's own thread may not.
import {
  type WorkerRequest,
  type WorkerApi,
  fromColumns,
  type SerializedError,
  type WorkerResponse,
  serializeError,
} from "./worker_api.ts";
import { checkpointer } from "./checkpoint.ts";
import { openDatabase } from "./connection.ts";
import { isFailedSync, translate } from "./errors.ts";
import { sqliteStore } from "./plants.ts";
import { sqliteTokens } from "./tokens.ts";

declare const self: Worker;

let opened: ReturnType<typeof open> | undefined;
/** Set after a failed fsync: nothing is acknowledged any more, the process ends, and the next one reads what the disk has. */
let broken: SerializedError | undefined;

function open(path: string, options: Parameters<WorkerApi["open"]>[1]) {
  const database = openDatabase(path, options);
  const store = sqliteStore(database);
  return { store, tokens: sqliteTokens(database), checkpoint: checkpointer(database) };
}

/** The calls come from our own thread, which opens first. */
const database = () => opened as ReturnType<typeof open>;

const calls: WorkerApi = {
  open: async (path, options) => void (opened = open(path, options)),
  add: (columns) => database().store.add(fromColumns(columns)),
  probe: () => database().store.probe(),
  listTokens: () => database().tokens.list(),
  addToken: (token) => database().tokens.add(token),
  revokeToken: (name, at) => database().tokens.revoke(name, at),
  recordTokenUses: (uses) => database().tokens.recordUses(uses),
  close: async () => database().store[Symbol.asyncDispose](),
};

self.addEventListener("message", async ({ data: call }: MessageEvent<WorkerRequest>) => {
  reply(await respondTo(call));
  // With the response on its way: a checkpoint takes its time.
  if (call.method === "add") checkpoint();
});

async function respondTo({ method, args }: WorkerRequest): Promise<WorkerResponse> {
  if (broken !== undefined) return { type: "error", error: broken };
  try {
    const call = calls[method] as (...args: unknown[]) => Promise<unknown>;
    return { type: "result", result: await call(...args) };
  } catch (error) {
    if (isFailedSync(error)) failStop(error);
    return { type: "error", error: serializeError(error) };
  }
}

/** One that fails for lack of space, say, loses nothing: the WAL has it all. */
function checkpoint(): void {
  try {
    database().checkpoint();
  } catch (error) {
    if (isFailedSync(error)) failStop(error);
  }
}

function failStop(error: unknown): void {
  broken = serializeError(translate(error));
  reply({ type: "broken", error: broken });
}

function reply(message: WorkerResponse): void {
  self.postMessage(message);
}
