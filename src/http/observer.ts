import type { Caller } from "../auth/authenticate.ts";
import type { PlantStoreError } from "../errors.ts";

/** The facts about a request that logs may contain: no token and no body. */
export interface ObservedRequest {
  /** The id that the response carries. */
  readonly requestId: string;
  /** The client's address, if known. A function, because looking it up costs. */
  readonly clientAddress: () => string | undefined;
}

/** The facts about a request and its response that logs, metrics and traces may contain. */
export interface CompletedRequest extends ObservedRequest {
  readonly method: string;
  /** A known path, or `other` for a path that the client made up. */
  readonly path: string;
  readonly status: number;
  /** The error number of the response; `undefined` after a success. */
  readonly error?: number | undefined;
  /** The time from the request's headers to the response, in milliseconds. */
  readonly durationMs: number;
  /**
   * The bearer of the token, if it was accepted. The subject of another issuer's token may be
   * personal data.
   */
  readonly caller?: Caller | undefined;
}

/**
 * The port of logs, metrics and traces. Its methods are called on the hot path, and nothing waits
 * for a promise that they return. Errors that they throw or reject with are printed with
 * `console.error`, and change no response.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import type { Observer } from "plant-store";
 *
 * const lines: string[] = [];
 * const observer: Observer = {
 *   onError: ({ code }, { requestId }) => lines.push(`${requestId} ${code}`),
 *   onResponse: ({ path, status, requestId }) => lines.push(`${requestId} ${path} ${status}`),
 * };
 * const request = { requestId: "r1", clientAddress: () => undefined };
 * observer.onResponse({ ...request, method: "POST", path: "/plants", status: 200, durationMs: 1 });
 *
 * assert.deepEqual(lines, ["r1 /plants 200"]);
 * ```
 */
export interface Observer {
  /** Called with every error before its response; `cause` and `reason` are not for the client. */
  onError(error: PlantStoreError, request: ObservedRequest): void;
  /** Called with every response. */
  onResponse(completed: CompletedRequest): void;
}
