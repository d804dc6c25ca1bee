import { attempt, type ErrorCode, ERRORS, PlantStoreError, statusOf } from "../errors.ts";
import type { Exchange, Exchanges } from "./bearer_guard.ts";
import { announcesBody, type BodyReader, hasUnreadableTrailers } from "./body.ts";
import type { Cors } from "./cors.ts";
import { lingeringClose } from "./lingering_close.ts";
import type { Observer } from "./observer.ts";
import { findAndNormalize, type Path } from "./paths.ts";

/** Options of {@linkcode respond}. */
interface RespondOptions {
  /**
   * Handles a request with a known path and an allowed method. An error that it throws becomes an
   * error response.
   */
  readonly handle: (request: Request) => Response | Promise<Response>;
  /** Finds a known path. */
  readonly findPath: (path: string) => Path | undefined;
  readonly observer: Observer;
  /** Receives the facts about each request that the guard needs. */
  readonly exchanges: Exchanges;
  readonly cors: Cors | undefined;
  readonly hasUnreadBody: BodyReader["hasUnread"];
  readonly clientAddress: (request: Request) => string | undefined;
  /** Whether the response to a request that arrived at this time has to close the connection. */
  readonly isShuttingDown: (arrivedAt: number) => boolean;
}

/**
 * Returns a `fetch` that always returns a response, even if no route matches or the handler throws.
 * The response has the id of its request, and closes a connection that cannot carry another
 * request. Notifies the observer.
 *
 * It is not an async function, so that it adds only one promise to those of the handler.
 */
export function respond(
  options: RespondOptions,
): (request: Request) => Response | Promise<Response> {
  const { handle, findPath, observer, exchanges, cors, hasUnreadBody, isShuttingDown } = options;

  return (request) => {
    const arrivedAt = performance.now();
    const { method } = request;
    const isHead = method === "HEAD";
    const path = findAndNormalize(request, findPath);
    const requestId = requestIdOf(request);
    const clientAddress = () =>
      attempt("clientAddress", () => options.clientAddress(request), requestId);
    let exchange: Exchange | undefined;

    const complete = (response: Response, error?: number) => {
      response.headers.set(REQUEST_ID, requestId);
      cors?.addHeaders(response, request);
      if (isHead) completeHead(response);

      const completed = {
        method,
        path: path?.pattern ?? "other",
        status: response.status,
        error,
        durationMs: performance.now() - arrivedAt,
        requestId,
        clientAddress,
        caller: exchange?.caller,
      };
      attempt("observer.onResponse", () => observer.onResponse(completed), requestId);

      // Bun reads the rest of a small body by itself: the connection can stay open. Close it while
      // the server is shutting down: the client's next request would fail.
      const isLast = attempt("isShuttingDown", () => isShuttingDown(arrivedAt), requestId);
      if (isLast === true || hasUnreadBody(request)) response.headers.set("connection", "close");
      return response;
    };

    const fail = (cause: unknown) => {
      const error =
        cause instanceof PlantStoreError
          ? cause
          : new PlantStoreError("internal", internalMessage(request), { cause });
      const observed = { requestId, clientAddress };
      attempt("observer.onError", () => observer.onError(error, observed), requestId);

      const response = isHead ? headOf(error) : errorResponse(error);
      // RFC 9110, section 15.5.6.
      if (error.code === "method_not_allowed") response.headers.set("allow", path?.allow ?? "");
      if (endsConnection(error.code, request)) response.headers.set("connection", "close");

      complete(response, ERRORS[error.code].error);

      // Do not read on after a malformed request: Bun would write its own 400 into this response.
      const closes = response.headers.get("connection") === "close";
      const isReadOn = closes && error.code !== "malformed_request" && !isHead;
      // A CONNECT request has no body: what follows belongs to the tunnel.
      return isReadOn && method !== "CONNECT"
        ? lingeringClose(errorBody(error), response, request)
        : response;
    };

    // RFC 9112, section 3.2.
    if (!hasValidHost(request)) return fail(new PlantStoreError("malformed_request"));
    if (hasUnreadableTrailers(request))
      return fail(
        new PlantStoreError("malformed_request", "trailers are not supported: send no `Trailer`"),
      );
    if (path === undefined) return fail(new PlantStoreError("unknown_path"));
    const access = path.access.get(method);
    if (access === undefined) {
      const preflight = cors?.preflight(request, path.allow);
      if (preflight === undefined) return fail(new PlantStoreError("method_not_allowed"));

      // No browser sends a Content-Length with a preflight. A proxy may send 0, and then a body,
      // which would be taken for the next request.
      if (request.headers.has("content-length")) preflight.headers.set("connection", "close");
      return complete(preflight);
    }

    exchange = { access, caller: undefined };
    exchanges.set(request, exchange);
    let response: Response | Promise<Response>;
    try {
      response = handle(request);
    } catch (error) {
      return fail(error);
    }
    return response instanceof Promise
      ? response.then((done) => complete(done), fail)
      : complete(response);
  };
}

/** The message after an internal error. A safe method stores nothing (RFC 9110, section 9.2.1). */
function internalMessage({ method }: Request): string | undefined {
  return method === "GET" || method === "HEAD" ? "internal error" : undefined;
}

/** A request's own id, if it matches {@linkcode REQUEST_ID_PATTERN}, or a new one. */
function requestIdOf({ headers }: Request): string {
  const own = headers.get(REQUEST_ID);
  return own !== null && REQUEST_ID_PATTERN.test(own) ? own : crypto.randomUUID();
}

/** The header with the id of a request, in the request and in its response. */
const REQUEST_ID = "x-request-id";

/** Allows a UUID, a ULID or a trace id. Other characters could forge a line of the log. */
const REQUEST_ID_PATTERN = /^[\w.:/+=@-]{1,128}$/;

/** Bun sends no Date to HEAD (RFC 9110, section 6.6.1). Elysia gives a 304 the length of its body, 0. */
function completeHead({ status, headers }: Response): void {
  headers.set("date", new Date().toUTCString());
  if (status === 304) headers.delete("content-length");
}

/**
 * Whether a refusal closes its connection, besides the causes in {@linkcode EXTRA_HEADERS}: the
 * next bytes may not be a request.
 *
 * - CONNECT: Bun treats all further bytes as a tunnel, whatever the response is.
 * - An unknown path or method, if no body is announced: for DELETE and OPTIONS, some proxies drop
 *   the framing of a body but still send it. It would be taken for the next request.
 */
function endsConnection(code: ErrorCode, request: Request): boolean {
  if (code !== "unknown_path" && code !== "method_not_allowed") return false;
  return request.method === "CONNECT" || !announcesBody(request);
}

/**
 * Whether the Host header is valid (RFC 9112, section 3.2): at most one, and a host. Two headers
 * arrive joined by a comma and a space, which no host has.
 */
function hasValidHost({ headers }: Request): boolean {
  const host = headers.get("host");
  return host === null || HOST.test(host);
}

/**
 * Matches a host with an optional port (RFC 3986, section 3.2): a name, which may be empty, an IPv4
 * address or an IP literal.
 */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]*|\[[\da-f:.]+\])(?::\d*)?$/i;

/** Returns the response of a successful operation, with its result as JSON. */
export function successResponse(result: unknown): Response {
  return Response.json(result, SUCCESS);
}

/**
 * Returns the response to a failed request: the contract's Error, with the headers of its cause.
 */
export function errorResponse(error: PlantStoreError): Response {
  const response = new Response(errorBody(error), FAILURE[error.code]);

  // RFC 6750, section 3.
  if (error.scope !== undefined) {
    const challenge = `${response.headers.get("www-authenticate")}, scope="${error.scope}"`;
    response.headers.set("www-authenticate", challenge);
  }
  return response;
}

function errorBody({ code, message }: PlantStoreError): string {
  return JSON.stringify({ error: ERRORS[code].error, message });
}

/**
 * Returns the response to a failed HEAD: the length of the body, without the body (RFC 9110,
 * section 9.3.2).
 */
function headOf(error: PlantStoreError): Response {
  const response = new Response(null, errorResponse(error));
  response.headers.set("content-length", String(new Blob([errorBody(error)]).size));
  return response;
}

/** How long a client should wait before it tries again, in seconds (RFC 9110, section 10.2.3). */
const RETRY_AFTER = "1";

/** The additional headers of the response to each cause. */
export const EXTRA_HEADERS: Partial<Record<ErrorCode, Readonly<Record<string, string>>>> = {
  // RFC 6750, section 3.1: no error code without credentials, or with those of another scheme.
  missing_credentials: { "WWW-Authenticate": 'Bearer realm="plant-store"' },
  invalid_credentials: { "WWW-Authenticate": 'Bearer realm="plant-store", error="invalid_token"' },
  insufficient_scope: {
    "WWW-Authenticate": 'Bearer realm="plant-store", error="insufficient_scope"',
  },
  // The client and the server may not agree on where the request ends (RFC 9112, section 11.2).
  malformed_request: { Connection: "close" },
  // The rest of the body is not read, so the connection cannot carry another request.
  body_too_large: { Connection: "close" },
  queue_full: { "Retry-After": RETRY_AFTER },
  storage_unavailable: { "Retry-After": RETRY_AFTER },
  shutting_down: { "Retry-After": RETRY_AFTER, Connection: "close" },
};

// Built once: constructing headers costs most of a response. A response copies them.
const COMMON = { "content-type": "application/json", "x-content-type-options": "nosniff" };
const SUCCESS: ResponseInit = { headers: new Headers(COMMON) };
const FAILURE = Object.fromEntries(
  (Object.keys(ERRORS) as ErrorCode[]).map((code) => {
    const headers = new Headers({ ...COMMON, "cache-control": "no-store", ...EXTRA_HEADERS[code] });
    return [code, { status: statusOf(code), headers }];
  }),
) as Record<ErrorCode, { status: number; headers: Headers }>;
