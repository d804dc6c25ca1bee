import { PlantStoreError } from "../../errors.ts";
import type { PlantStore } from "../../plant_store.ts";
import type { TokenStore } from "../../token_store.ts";
import { type WorkerRequest, type WorkerApi, deserializeError, type WorkerResponse, toColumns } from "./worker_api.ts";
import type { OpenOptions } from "./connection.ts";
import { DatabaseFileError } from "./errors.ts";

/** What a SQLite database keeps. */
export interface SqliteDatabase {
  /** The plants. Closing it closes the database. */
  readonly plants: PlantStore;
  /** The tokens, in the same file. */
  readonly tokens: TokenStore;
}

/** How to open, and whom to tell when it is over. */
export interface OpenSqliteOptions extends OpenOptions {
  /** Told once, when the database must not be used any more: it acknowledges nothing from then on. */
  readonly onBroken: (error: Error) => void;
  /** How long closing may take before the disk is left to itself, in milliseconds. @default {2_000} */
  readonly closeTimeoutMs?: number;
}

/**
 * Opens a SQLite database in a Worker of its own: bun:sqlite is synchronous, and a disk that hangs must not stop the
 * server's thread from answering.
 *
 * @throws {DatabaseFileError} If the file cannot be used.
 */
export async function openSqlite(path: string, openOptions: OpenSqliteOptions): Promise<SqliteDatabase> {
  const { onBroken, closeTimeoutMs = 2_000, ...options } = openOptions;
  const worker = startWorker(onBroken);
  await worker.call("open", path, options).catch((error) => {
    worker.terminate();
    throw error;
  });
  return {
    plants: {
      add: (plants) => worker.call("add", toColumns(plants)),
      probe: () => worker.call("probe"),
      [Symbol.asyncDispose]: () => worker.close(closeTimeoutMs),
    },
    tokens: {
      list: () => worker.call("listTokens"),
      add: (token) => worker.call("addToken", token),
      revoke: (name, at) => worker.call("revokeToken", name, at),
      recordUses: (uses) => worker.call("recordTokenUses", uses),
    },
  };
}

function startWorker(onBroken: (error: Error) => void) {
  // Inside the executable every file's URL is that of the root, where `--root` of the build puts the Worker.
  const worker = new Worker(new URL("./worker.ts", import.meta.url));
  // The Worker takes one call after the other, so its replies come in the order of the calls.
  const waiting: PromiseWithResolvers<unknown>[] = [];
  let broken = false;

  function failStop(error: Error): void {
    broken = true;
    onBroken(error);
  }

  worker.addEventListener("message", ({ data: reply }: MessageEvent<WorkerResponse>) => {
    if (reply.type === "broken") failStop(deserializeError(reply.error));
    else if (reply.type === "result") waiting.shift()?.resolve(reply.result);
    else waiting.shift()?.reject(deserializeError(reply.error));
  });
  worker.addEventListener("error", ({ message }) => {
    const error = new PlantStoreError("storage_unavailable", undefined, { cause: message });
    for (const { reject } of waiting.splice(0)) reject(error);
    failStop(error);
  });

  function call<Method extends keyof WorkerApi>(method: Method, ...args: Parameters<WorkerApi[Method]>) {
    const response = Promise.withResolvers<unknown>();
    waiting.push(response);
    worker.postMessage({ method, args } as WorkerRequest);
    return response.promise as ReturnType<WorkerApi[Method]>;
  }

  /** What is broken is left as it is: the next start reads what the disk has. */
  async function close(timeoutMs: number): Promise<void> {
    try {
      if (!broken) await within(timeoutMs, call("close"));
    } finally {
      worker.terminate();
    }
  }

  return { call, close, terminate: () => worker.terminate() };
}

async function within(milliseconds: number, promise: Promise<void>): Promise<void> {
  const timeout = Promise.withResolvers<void>();
  const late = () => timeout.reject(new DatabaseFileError("Cannot close the database: the disk does not answer"));
  const timer = setTimeout(late, milliseconds);
  await Promise.race([promise, timeout.promise]).finally(() => clearTimeout(timer));
}
