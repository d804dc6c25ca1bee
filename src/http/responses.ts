import { type ErrorCode, ERRORS, PlantStoreError, statusOf } from "../errors.ts";
import { hasUnreadBody } from "./body.ts";
import type { Cors } from "./cors.ts";
import type { ObservedRequest, Observer } from "./observer.ts";
import { hasValidHost, normalizeUrl, REQUEST_ID, requestIdOf } from "./request.ts";

/** How long a client should wait before it tries again, in seconds (RFC 9110, section 10.2.3). */
const RETRY_AFTER = "1";

/** The headers that only some causes add. */
const EXTRA_HEADERS: Partial<Record<ErrorCode, Record<string, string>>> = {
  // RFC 6750, section 3: no error code if no credentials were sent.
  missing_credentials: { "www-authenticate": 'Bearer realm="plant-store"' },
  invalid_credentials: { "www-authenticate": 'Bearer realm="plant-store", error="invalid_token"' },
  insufficient_scope: { "www-authenticate": 'Bearer realm="plant-store", error="insufficient_scope"' },
  // The client and the server may not agree on where the request ends (RFC 9112, section 11.2).
  malformed_request: { connection: "close" },
  // The rest of the body is not read, so the connection cannot carry another request.
  body_too_large: { connection: "close" },
  queue_full: { "retry-after": RETRY_AFTER },
  storage_unavailable: { "retry-after": RETRY_AFTER },
  shutting_down: { "retry-after": RETRY_AFTER, connection: "close" },
};

/** The headers that a response to this cause has beyond those of every error. */
export function extraHeaders(code: ErrorCode): Readonly<Record<string, string>> {
  return EXTRA_HEADERS[code] ?? {};
}

// Headers are built once: they cost most of a response, which copies them.
const COMMON = { "content-type": "application/json", "x-content-type-options": "nosniff" };
const SUCCESS: ResponseInit = { headers: new Headers(COMMON) };
const FAILURE = Object.fromEntries(
  (Object.keys(ERRORS) as ErrorCode[]).map((code) => {
    const headers = new Headers({ ...COMMON, "cache-control": "no-store", ...extraHeaders(code) });
    return [code, { status: statusOf(code), headers }];
  }),
) as Record<ErrorCode, { status: number; headers: Headers }>;

/** The response for what a handler returned; `undefined` if that is a response already. */
export function successResponse(body: unknown): Response | undefined {
  return body instanceof Response ? undefined : Response.json(body, SUCCESS);
}

/** The response to a request that failed: the contract's Error, with the headers of its cause. */
export function errorResponse({ code, message }: PlantStoreError): Response {
  return Response.json({ error: ERRORS[code].error, message }, FAILURE[code]);
}

/** What {@linkcode respond} needs. */
export interface RespondOptions {
  /** Handles a request to a path that exists, with a method that it takes. What it throws becomes an error response. */
  readonly handle: (request: Request) => Response | Promise<Response>;
  /** The methods of each path that exists. */
  readonly methods: ReadonlyMap<string, readonly string[]>;
  readonly observer: Observer;
  readonly cors: Cors | undefined;
  /** The most a body may have, in bytes. */
  readonly maxBodyBytes: number;
  readonly clientAddress: (request: Request) => string | undefined;
  /** Whether every response is to close its connection. */
  readonly isShuttingDown: () => boolean;
}

/**
 * A `fetch` that gives every request a response, even if there is no route for it or its handler fails. The response
 * has the id of its request, and closes a connection that cannot carry another request. The observer hears of it.
 *
 * It surrounds every request: so it is not an async function, and adds one promise to those of the handler.
 */
export function respond(options: RespondOptions): (request: Request) => Response | Promise<Response> {
  return (request) => {
    const received: ReceivedRequest = {
      request,
      startedAt: performance.now(),
      path: normalizeUrl(request),
      requestId: requestIdOf(request),
      clientAddress: () => options.clientAddress(request),
    };
    const succeed = (response: Response) => complete(response, received, options);
    const fail = (error: unknown) => complete(failure(error, received, options), received, options);
    // RFC 9112, section 3.2.
    if (!hasValidHost(request)) return fail(new PlantStoreError("malformed_request"));
    const methods = options.methods.get(received.path);
    if (methods === undefined) return fail(new PlantStoreError("unknown_path"));
    if (!methods.includes(request.method)) {
      const preflight = options.cors?.preflight(request, methods);
      if (preflight !== undefined) return succeed(preflight);
      const refusal = fail(new PlantStoreError("method_not_allowed"));
      // RFC 9110, section 15.5.6.
      refusal.headers.set("allow", methods.join(", "));
      return refusal;
    }
    let response: Response | Promise<Response>;
    try {
      response = options.handle(request);
    } catch (error) {
      return fail(error);
    }
    return response instanceof Promise ? response.then(succeed, fail) : succeed(response);
  };
}

/** A request while it is handled. */
interface ReceivedRequest extends ObservedRequest {
  readonly request: Request;
  readonly path: string;
  /** On the clock of `performance.now()`. */
  readonly startedAt: number;
}

/** Reports an error, and makes its response. The cause of an error that is not ours is for the log only. */
function failure(error: unknown, received: ReceivedRequest, { observer }: RespondOptions): Response {
  const known = error instanceof PlantStoreError ? error : new PlantStoreError("internal", undefined, { cause: error });
  observer.onError(known, received);
  const response = errorResponse(known);
  // RFC 9110, section 9.3.2.
  return received.request.method === "HEAD" ? new Response(null, response) : response;
}

/** Adds the headers that every response may have, and tells the observer. */
function complete(response: Response, received: ReceivedRequest, options: RespondOptions): Response {
  const { request, path, requestId, clientAddress, startedAt } = received;
  response.headers.set(REQUEST_ID, requestId);
  options.cors?.addHeaders(response, request);
  // RFC 9112, section 9.6: the rest of the body would have to be read to its end. If the server is shutting down, the
  // client would send its next request to a server that has stopped.
  if (options.isShuttingDown() || hasUnreadBody(request, options.maxBodyBytes)) {
    response.headers.set("connection", "close");
  }
  options.observer.onResponse({
    method: request.method,
    path: options.methods.has(path) ? path : "other",
    status: response.status,
    durationMs: performance.now() - startedAt,
    requestId,
    clientAddress,
  });
  return response;
}
