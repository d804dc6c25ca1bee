import type { ServingOptions } from "../adapter.ts";
import type { Database } from "../database.ts";
import { withDeadline } from "../../async/deadline.ts";
import { PlantStoreError } from "../../errors.ts";
import { keysetPages } from "../keyset.ts";
import type { PlantStore } from "../plant_store.ts";
import { decodeOutcomes, encodeBatch, type OutcomesMessage } from "./batch_message.ts";
import { type BackgroundCheck, backgroundCheck } from "./background_check.ts";
import { allTokens } from "./token_columns.ts";
import { checkpointFailures, walSize } from "./metrics.ts";
import {
  deserializeError,
  fromColumns,
  type WorkerApi,
  type WorkerRequest,
  type WorkerResponse,
} from "./worker_api.ts";

/**
 * Opens a SQLite database in a Worker of its own: bun:sqlite is synchronous, and a disk that hangs must not stop the
 * server's thread from responding. Soon after, a check of the whole file for damage begins beside it.
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
  await call("open", path).catch((error) => {
    worker.terminate();
    throw error;
  });
  const onDamage = (finding: string) => void call("reportDamage", finding);
  const check = await backgroundCheck(path, { onInfo, onWarning, onDamage });
  return {
    plants: {
      add: addBy(worker),
      probe: () => call("probe"),
    },
    tokens: {
      list: () => allTokens((row) => call("tokensAfter", row)),
      revision: () => call("tokenRevision"),
      add: (token) => call("addToken", token),
      revoke: (name, at) => call("revokeToken", name, at),
      delete: (name) => call("deleteToken", name),
      prune: (at) => call("pruneTokens", at),
      recordUses: (uses) => call("recordTokenUses", uses),
    },
    pages: () => keysetPages(async (id) => fromColumns(await call("pageFrom", id))),
    metrics: () => [walSize(path), checkpointFailures(failures)],
    failed: worker.failed,
    [Symbol.asyncDispose]: () => close(worker, check, { closeTimeoutMs, onWarning }),
  };
}

type SqliteWorker = ReturnType<typeof startWorker>;

function startWorker(onCheckpointFailed: (error: Error) => void) {
  // Inside the executable every file's URL is that of the root, where `--root` of the build puts the Worker.
  const worker = new Worker(new URL("./worker.js", import.meta.url));
  const inFlight = new Map<number, PromiseWithResolvers<unknown>>();
  const { promise: failed, resolve: failStop } = Promise.withResolvers<Error>();
  let crash: Error | undefined;
  let lastId = 0;

  worker.addEventListener("message", ({ data }: MessageEvent<WorkerResponse | string>) => {
    const response = typeof data === "string" ? resultOf(decodeOutcomes(data)) : data;
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

function resultOf({ id, outcomes }: OutcomesMessage): WorkerResponse {
  return { type: "result", id, result: outcomes };
}

function addBy({ ask }: SqliteWorker): PlantStore["add"] {
  return (plants, { timeoutMs }) =>
    ask((id) => encodeBatch({ id, timeoutMs, plants })) as ReturnType<PlantStore["add"]>;
}

function callBy({ ask }: SqliteWorker) {
  return <Method extends keyof WorkerApi>(method: Method, ...args: Parameters<WorkerApi[Method]>) =>
    ask((id) => ({ id, method, args }) as WorkerRequest) as ReturnType<WorkerApi[Method]>;
}

/** A hanging disk is not waited for: what was acknowledged is on it, and the next start reads the WAL. */
async function close(
  worker: SqliteWorker,
  check: BackgroundCheck,
  { closeTimeoutMs, onWarning }: Required<Pick<ServingOptions, "closeTimeoutMs" | "onWarning">>,
): Promise<void> {
  const notClosed = () => onWarning("Database not closed: the disk does not respond");
  try {
    // The last connection to be closed removes the WAL: it has to be the one that may write.
    const closed = async () => {
      await check.stop();
      if (!worker.hasCrashed()) await callBy(worker)("close");
    };
    await withDeadline(closed(), closeTimeoutMs, notClosed);
  } finally {
    worker.terminate();
  }
}
