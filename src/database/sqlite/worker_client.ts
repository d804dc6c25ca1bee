import { withDeadline } from "../../async/deadline.ts";
import type { TokenRecord } from "../../auth/token_store.ts";
import { PlantStoreError } from "../../errors.ts";
import type { ServingOptions } from "../adapter.ts";
import type { Database, PlantStore } from "../database.ts";
import { checkpointMetrics } from "./checkpoint.ts";
import { type BackgroundCheck, backgroundCheck } from "./integrity.ts";
import {
  decodeOutcomes,
  decodeTokens,
  deserializeError,
  encodeBatch,
  type WorkerApi,
  type WorkerRequest,
  type WorkerResponse,
} from "./worker_messages.ts";

/**
 * Opens a SQLite database in a Worker: bun:sqlite is synchronous, and a hanging disk must not keep the server's thread
 * from responding. Soon after, a check of the whole file for corruption begins in another Worker.
 *
 * @throws {DatabaseError} If the file cannot be used.
 */
export async function openSqliteWorker(path: string, options: ServingOptions = {}): Promise<Database> {
  const { closeTimeoutMs = 2_000, onWarning = () => {}, onInfo = () => {} } = options;
  let failures = 0;
  const worker = startWorker((error) => {
    failures++;
    onWarning("Checkpoint failed", error);
  });
  const call = callBy(worker);
  const warning = await call("open", path).catch((error) => {
    worker.terminate();
    throw error;
  });
  if (warning !== undefined) onWarning(warning);
  const onCorrupt = (finding: string) => void call("reportCorruption", finding);
  const check = await backgroundCheck(path, { onInfo, onWarning, onCorrupt });
  return {
    plants: {
      add: (plants, { timeoutMs }) =>
        worker.ask((id) => encodeBatch({ id, timeoutMs, plants })) as ReturnType<PlantStore["add"]>,
      probe: () => call("probe"),
    },
    tokens: {
      list: () => allTokens((row) => call("tokensAfter", row)),
      revision: () => call("revision"),
      add: (token) => call("add", token),
      revoke: (name, at) => call("revoke", name, at),
      delete: (name) => call("delete", name),
      prune: (at) => call("prune", at),
      recordUses: (uses) => call("recordUses", uses),
    },
    pages: () => readPages(path),
    metrics: () => checkpointMetrics(path, failures),
    failed: worker.failed,
    [Symbol.asyncDispose]: () => closeWorker(worker, check, { closeTimeoutMs, onWarning }),
  };
}

type SqliteWorker = ReturnType<typeof startWorker>;

function startWorker(onCheckpointFailed: (error: Error) => void) {
  // Inside the executable the URL of every file is in the root, where `--root` of the build puts the Worker.
  const worker = new Worker(new URL("./worker.js", import.meta.url));
  const inFlight = new Map<number, PromiseWithResolvers<unknown>>();
  const { promise: failed, resolve: failStop } = Promise.withResolvers<Error>();
  let crash: Error | undefined;
  let lastId = 0;

  worker.addEventListener("message", ({ data }: MessageEvent<WorkerResponse | string>) => {
    const response = typeof data === "string" ? decodeOutcomes(data) : data;
    if (response.type === "failed") return failStop(deserializeError(response.error));
    if (response.type === "checkpoint_failed") return onCheckpointFailed(deserializeError(response.error));
    const { resolve, reject } = inFlight.get(response.id) ?? {};
    inFlight.delete(response.id);
    if (response.type === "result") resolve?.(response.result);
    else reject?.(deserializeError(response.error));
  });
  worker.addEventListener("error", ({ message }) => {
    crash = new PlantStoreError("storage_unavailable", undefined, { cause: message });
    for (const { reject } of inFlight.values()) reject(crash);
    inFlight.clear();
    failStop(crash);
  });

  function ask(request: (id: number) => WorkerRequest | string): Promise<unknown> {
    if (crash !== undefined) return Promise.reject(crash);
    const response = Promise.withResolvers<unknown>();
    inFlight.set(++lastId, response);
    worker.postMessage(request(lastId));
    return response.promise;
  }

  return { ask, failed, hasCrashed: () => crash !== undefined, terminate: () => worker.terminate() };
}

function callBy({ ask }: SqliteWorker) {
  return <Method extends keyof WorkerApi>(method: Method, ...args: Parameters<WorkerApi[Method]>) =>
    ask((id) => ({ id, method, args }) as WorkerRequest) as ReturnType<WorkerApi[Method]>;
}

/** All tokens, oldest first. Read in pages, so that the Worker takes plants between two of them. */
async function allTokens(pageAfter: (row: bigint) => Promise<string>): Promise<TokenRecord[]> {
  const tokens: TokenRecord[] = [];
  for (let row: bigint | undefined = FIRST_ROW; row !== undefined;) {
    const page = decodeTokens(await pageAfter(row));
    for (const token of page.tokens) tokens.push(token);
    row = page.last;
  }
  return tokens.toSorted((one, other) => +one.createdAt - +other.createdAt || (one.name < other.name ? -1 : 1));
}

/** SQLite numbers rows from 1. */
const FIRST_ROW = 0n;

/** With another connection, on this thread: no server reads plants. */
async function* readPages(path: string) {
  const { openPlants } = await import("./plants.ts");
  await using reader = openPlants(path);
  yield* reader.pages();
}

/** Does not wait for a hanging disk: acknowledged plants are on it, and the next start reads the WAL. */
async function closeWorker(
  worker: SqliteWorker,
  check: BackgroundCheck,
  { closeTimeoutMs, onWarning }: Required<Pick<ServingOptions, "closeTimeoutMs" | "onWarning">>,
): Promise<void> {
  const notClosed = () => onWarning("Database not closed: the disk does not respond");
  try {
    // The last connection to close removes the WAL: it has to be the one that may write.
    const closed = async () => {
      await check.stop();
      if (!worker.hasCrashed()) await callBy(worker)("close");
    };
    await withDeadline(closed(), closeTimeoutMs, notClosed);
  } finally {
    worker.terminate();
  }
}
