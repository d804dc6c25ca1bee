import type { PlantStoreError } from "../errors.ts";
import { hasUnreadBody } from "./body.ts";
import { normalizeUrl, REQUEST_ID, requestIdOf } from "./request.ts";

/** What logs may contain of a request: no token and no body. */
export interface ObservedRequest {
  /** The id that the response carries. */
  readonly requestId: string;
  /** The client's address, if known. A function, because looking it up costs. */
  readonly clientAddress: () => string | undefined;
}

/** What logs, metrics and traces may contain of a request and its response. */
export interface CompletedRequest extends ObservedRequest {
  readonly method: string;
  /** A path that exists, or `other`: a path that a client made up is not repeated. */
  readonly path: string;
  readonly status: number;
  /** From the request's headers to the response, in milliseconds. */
  readonly durationMs: number;
}

/**
 * The port of logs, metrics and traces. Its methods are called on the hot path, and must not throw.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import type { Observer } from "plant-store";
 *
 * const lines: string[] = [];
 * const observer: Observer = {
 *   onError: ({ code }, { requestId }) => lines.push(`${requestId} ${code}`),
 *   onResponse: ({ method, path, status, requestId }) => lines.push(`${requestId} ${method} ${path} ${status}`),
 * };
 * const request = { requestId: "r1", clientAddress: () => undefined };
 * observer.onResponse({ ...request, method: "POST", path: "/plants", status: 200, durationMs: 1 });
 *
 * assert.deepEqual(lines, ["r1 POST /plants 200"]);
 * ```
 */
export interface Observer {
  /** Called with every error before its response; `cause` and `reason` are not for the client. */
  onError(error: PlantStoreError, request: ObservedRequest): void;
  /** Called with every response. */
  onResponse(completed: CompletedRequest): void;
}

/** A request while it is handled. */
export interface ReceivedRequest extends ObservedRequest {
  readonly request: Request;
  readonly path: string;
}

/** Handles a request: the app, or a function around it. */
export type Handle = (received: ReceivedRequest) => Response | Promise<Response>;

/** What {@linkcode observe} needs. */
export interface ObserveOptions {
  readonly observer: Observer;
  /** The paths that exist. */
  readonly paths: { has(path: string): boolean };
  /** The most a body may have, in bytes. */
  readonly maxBodyBytes: number;
  /** The address of a request's client. */
  readonly clientAddress: (request: Request) => string | undefined;
  /** Whether every response is to close its connection. */
  readonly isShuttingDown: () => boolean;
}

/**
 * A `fetch` that gives every response the id of its request, closes connections that cannot carry another request, and
 * calls the observer. It surrounds every request, so it is not an async function.
 */
export function observe(handle: Handle, options: ObserveOptions): (request: Request) => Response | Promise<Response> {
  return (request) => {
    const start = performance.now();
    const requestId = requestIdOf(request);
    const clientAddress = () => options.clientAddress(request);
    const received = { request, path: normalizeUrl(request), requestId, clientAddress };
    const response = handle(received);
    if (response instanceof Promise) return response.then((settled) => complete(settled, received, start, options));
    return complete(response, received, start, options);
  };
}

function complete(response: Response, received: ReceivedRequest, start: number, options: ObserveOptions): Response {
  const { request, path, requestId, clientAddress } = received;
  response.headers.set(REQUEST_ID, requestId);
  // RFC 9112, section 9.6: what is left of the body would have to be read to its end, or the client would send its next
  // request to a server that has stopped when this response comes late.
  if (options.isShuttingDown() || hasUnreadBody(request, options.maxBodyBytes))
    response.headers.set("connection", "close");
  options.observer.onResponse({
    method: request.method,
    path: options.paths.has(path) ? path : "other",
    status: response.status,
    durationMs: performance.now() - start,
    requestId,
    clientAddress,
  });
  return response;
}
