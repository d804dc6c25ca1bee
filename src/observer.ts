import type { PlantStoreError } from "./errors.ts";

/** What others may know of a request and its response: nothing of it is a token or a body. */
export interface CompletedRequest {
  readonly method: string;
  /** One of the paths there are, or `other`: what a client makes up is not repeated. */
  readonly path: string;
  readonly status: number;
  /** From the request's headers to the response, in milliseconds. */
  readonly durationMs: number;
  /** The id that the response carries. */
  readonly requestId: string;
}

/** The port of whoever watches: logs, metrics and traces. Its methods are called on the hot path, and must not throw. */
export interface Observer {
  /** Told of every error before it is answered; `cause` says what the client is not told. */
  onError(error: PlantStoreError, requestId: string): void;
  /** Told of every response. */
  onResponse(completed: CompletedRequest): void;
}
