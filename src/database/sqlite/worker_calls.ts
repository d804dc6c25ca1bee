import { PlantStoreError } from "../../errors.ts";
import type { NewPlant } from "../../plant/plant.ts";
import { DatabaseError } from "../database.ts";
import { resultCodeOf } from "./errors.ts";

declare const self: Worker;

/** A call for a Worker. The response has the same id. */
interface Call {
  readonly id: number;
  readonly method: string;
  readonly args: readonly unknown[];
}

/** A message from a Worker: the response to a call, an event, or the report that the Worker has failed. */
type WorkerMessage =
  | { readonly type: "result"; readonly id: number; readonly result: unknown }
  | { readonly type: "error"; readonly id: number; readonly error: SerializedError }
  | { readonly type: "failed"; readonly error: SerializedError }
  | { readonly type: "event"; readonly event: unknown };

type Methods<Api> = { readonly [Method in keyof Api]: (...args: never[]) => unknown };

/** Options of {@linkcode startWorker}. */
interface CallOptions {
  /** Decodes the response to `send`. @default no texts are sent */
  readonly decode?: (text: string) => unknown;
  /** Called with each event that the Worker emits with {@linkcode emit}. @default does nothing */
  readonly onEvent?: ((event: never) => void) | undefined;
}

/**
 * The programs of the Workers. The executable has every module in its root: the build's `--root` puts
 * these there as well.
 */
const PROGRAMS = {
  writer: new URL("./writer_worker.js", import.meta.url),
  background: new URL("./background_worker.js", import.meta.url),
};

/** Starts a Worker, and returns functions to call the methods that it serves ({@linkcode serveCalls}). */
export function startWorker<Api extends Methods<Api>>(
  program: keyof typeof PROGRAMS,
  { decode, onEvent }: CallOptions = {},
) {
  const worker = new Worker(PROGRAMS[program]);
  const inFlight = new Map<number, PromiseWithResolvers<unknown>>();
  const { promise: failed, resolve } = Promise.withResolvers<Error>();
  let hasFailed = false;
  let crash: Error | undefined;
  let lastId = 0;

  worker.addEventListener("message", ({ data }: MessageEvent<WorkerMessage | string>) => {
    if (typeof data === "string") {
      const [id, text] = parseText(data);
      return take(id)?.resolve(decode?.(text));
    }

    if (data.type === "failed") fail(deserializeError(data.error));
    else if (data.type === "event") onEvent?.(data.event as never);
    else if (data.type === "result") take(data.id)?.resolve(data.result);
    else take(data.id)?.reject(deserializeError(data.error));
  });

  worker.addEventListener("error", ({ message }) => {
    crash = new PlantStoreError("storage_unavailable", undefined, { cause: message });
    for (const { reject } of inFlight.values()) reject(crash);
    inFlight.clear();
    fail(crash);
  });

  function fail(failure: Error): void {
    hasFailed = true;
    resolve(failure);
  }

  function take(id: number): PromiseWithResolvers<unknown> | undefined {
    const call = inFlight.get(id);
    inFlight.delete(id);
    return call;
  }

  function post(message: Call | string): Promise<unknown> {
    if (crash !== undefined) return Promise.reject(crash);

    const response = Promise.withResolvers<unknown>();
    inFlight.set(lastId, response);
    worker.postMessage(message);
    return response.promise;
  }

  return {
    /**
     * Calls a method. Rejects with what it throws.
     *
     * @throws {PlantStoreError} `storage_unavailable` if the Worker crashes.
     */
    call: <Method extends keyof Api & string>(method: Method, ...args: Parameters<Api[Method]>) =>
      post({ id: ++lastId, method, args }) as Promise<Awaited<ReturnType<Api[Method]>>>,
    /** Calls the method for texts. Posting a string needs no structured clone. */
    send: (text: string) => post(`${++lastId} ${text}`),
    /** Resolves once the Worker crashes or calls {@linkcode reportFailure}. */
    failed,
    /**
     * Ends the Worker. A failed Worker ends with the process instead: it may hang, and ending its thread
     * would close the connections that it must keep open.
     */
    terminate: () => (hasFailed ? (worker as Unreferenced).unref() : worker.terminate()),
  };
}

/** A Worker in Bun, where `unref` lets the process end while the Worker runs. */
type Unreferenced = Worker & { unref(): void };

function parseText(message: string): [id: number, text: string] {
  const at = message.indexOf(" ");
  return [Number(message.slice(0, at)), message.slice(at + 1)];
}

/**
 * In a Worker, serves the calls of {@linkcode startWorker}. Responds to each call when it ends.
 *
 * @param api The methods.
 * @param respondTo The method for texts.
 */
export function serveCalls(api: object, respondTo?: (text: string) => Promise<string>): void {
  const methods = api as Readonly<Record<string, (...args: readonly unknown[]) => unknown>>;

  async function respond(request: Call | string): Promise<WorkerMessage | string> {
    const [id, text] = typeof request === "string" ? parseText(request) : [request.id];
    try {
      if (text !== undefined) return `${id} ${await respondTo?.(text)}`;

      const { method, args } = request as Call;
      const result = await methods[method]?.(...args);
      return { type: "result", id, result };
    } catch (error) {
      return { type: "error", id, error: serializeError(error) };
    }
  }

  self.addEventListener("message", async ({ data }: MessageEvent<Call | string>) =>
    post(await respond(data)),
  );
}

/** In a Worker, reports that the Worker has failed for good. */
export function reportFailure(error: unknown): void {
  post({ type: "failed", error: serializeError(error) });
}

/** In a Worker, posts an event, which answers no call. */
export function emit(event: unknown): void {
  post({ type: "event", event });
}

function post(message: WorkerMessage | string): void {
  self.postMessage(message);
}

/** Returns why a call failed, in words: the error of its method, or the crash of the Worker. */
export function reasonOfCall(error: Error): string {
  return error instanceof PlantStoreError ? String(error.cause) : error.message;
}

/** An error as a plain object. A structured clone would lose the class of our own errors. */
export type SerializedError = ReturnType<typeof serializeError>;

/** Turns an error into an object that can be cloned. */
export function serializeError(error: unknown) {
  const { name, message, cause, stack } = error as Error;
  const code = error instanceof PlantStoreError ? error.code : undefined;
  const errcode = resultCodeOf(error);
  return { name, message, code, errcode, cause: String(code === undefined ? stack : cause) };
}

/** The inverse of {@linkcode serializeError}. */
export function deserializeError({ name, message, code, errcode, cause }: SerializedError): Error {
  if (code !== undefined) return new PlantStoreError(code, message, { cause });
  const error =
    name === "DatabaseError"
      ? new DatabaseError(message, { cause })
      : new Error(message, { cause });
  return Object.assign(error, { errcode });
}

// Batches and their outcomes are sent as JSON, because Bun copies a string without a structured clone.
// A clone costs two microseconds for each plant, and more while the code is cold.

/** Encodes a batch as JSON. Ids are strings, because a JSON number cannot hold an int64. */
export function encodeBatch(plants: readonly NewPlant[], timeoutMs: number): string {
  const written = plants.map((plant) => ({ ...plant, id: String(plant.id) }));
  return JSON.stringify({ timeoutMs, plants: written });
}

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string) {
  const { timeoutMs, plants } = JSON.parse(message) as {
    readonly timeoutMs: number;
    readonly plants: readonly (Omit<NewPlant, "id"> & { readonly id: string })[];
  };
  return { timeoutMs, plants: plants.map((plant) => ({ ...plant, id: BigInt(plant.id) })) };
}
