import { Elysia, NotFoundError } from "elysia";
import { PlantStoreError } from "../errors.ts";
import type { Observer } from "./observer.ts";
import { type Fetch, withCors } from "./cors.ts";
import { hasUnreadBody } from "./body.ts";
import { hasValidHost, normalizeUrl, REQUEST_ID, requestIdOf } from "./request.ts";
import { errorResponse, successResponse } from "./responses.ts";

/** What every request needs. */
export interface LifecycleOptions {
  /** Gets every error and every response. */
  readonly observer: Observer;
  /** The paths that exist, each with its methods as the `Allow` header lists them. May be filled in later. */
  readonly allowed: ReadonlyMap<string, string>;
  /** The most a body may have, in bytes. */
  readonly maxBodyBytes: number;
  /** The origins whose pages may call. */
  readonly corsOrigins: readonly string[];
  /** The address of a request's client. */
  readonly clientAddress: (request: Request) => string | undefined;
  /** Whether the connection of every response is to be closed. */
  readonly isShuttingDown: () => boolean;
}

/**
 * An app without routes: what happens around every request, whatever its path. Errors become responses, every response
 * gets the id of its request, and the observer is called.
 */
export function lifecycle(options: LifecycleOptions) {
  const errors: Errors = new WeakMap();
  return new Elysia({
    // "/plants/" is not "/plants".
    strictPath: true,
    // A response is checked, not rewritten.
    normalize: false,
  })
    .wrap(once((fetch) => observed(crossOrigin(fetch, options), { ...options, errors })))
    .onError(({ error, path, request, set }) => {
      // With any other status, Elysia makes a second Response from the stream of the first one's body.
      set.status = 200;
      if (error instanceof NotFoundError) return noRoute(options.allowed, path);
      const known = asPlantStoreError(error);
      errors.set(request, known);
      return errorResponse(known);
    })
    .mapResponse({ as: "global" }, ({ response }) => successResponse(response));
}

/** Elysia wraps its own `fetch` again for every request, and it is always the same one. */
function once(wrap: (fetch: Fetch) => Fetch) {
  let [inner, wrapped]: [unknown, Fetch?] = [undefined];
  return (fetch: unknown): Fetch => {
    if (wrapped === undefined || fetch !== inner) [inner, wrapped] = [fetch, wrap(fetch as Fetch)];
    return wrapped;
  };
}

/** The error of a request, until the observer is called with it. */
type Errors = WeakMap<Request, PlantStoreError>;

type Observed = LifecycleOptions & { readonly errors: Errors };

/** Costs nothing where no other origin may call. */
function crossOrigin(fetch: Fetch, { allowed, corsOrigins }: LifecycleOptions): Fetch {
  if (corsOrigins.length === 0) return fetch;
  return withCors(fetch, { origins: new Set(corsOrigins), methodsOf: (path) => allowed.get(path) });
}

/** No async function: this is around every request. */
function observed(fetch: Fetch, options: Observed): Fetch {
  return (request) => {
    const received: Received = { request, path: normalizeUrl(request), start: performance.now() };
    const finish = (response: Response) => finished(response, received, options);
    const response = hasValidHost(request) ? fetch(request) : malformed(request, options.errors);
    return response instanceof Promise ? response.then(finish) : finish(response);
  };
}

/** Refuses a request with a bad Host before it is routed (RFC 9112, section 3.2). */
function malformed(request: Request, errors: Errors): Response {
  const error = new PlantStoreError("malformed_request");
  errors.set(request, error);
  return errorResponse(error);
}

interface Received {
  readonly request: Request;
  readonly path: string;
  /** When its headers were there, in milliseconds. */
  readonly start: number;
}

function finished(response: Response, { request, path, start }: Received, options: Observed): Response {
  const { observer, allowed, errors } = options;
  const requestId = requestIdOf(request);
  response.headers.set(REQUEST_ID, requestId);
  if (isLastOfConnection(request, options)) response.headers.set("connection", "close");
  const completed = {
    method: request.method,
    path: allowed.has(path) ? path : "other",
    status: response.status,
    durationMs: performance.now() - start,
    requestId,
    clientAddress: () => options.clientAddress(request),
  };
  const error = errors.get(request);
  if (error !== undefined) observer.onError(error, completed);
  observer.onResponse(completed);
  return response;
}

/**
 * RFC 9112, section 9.6: what is left of the body would have to be read to its end, or the client would send its next
 * request to a server that has stopped when this response comes late.
 */
function isLastOfConnection(request: Request, { maxBodyBytes, isShuttingDown }: LifecycleOptions): boolean {
  return isShuttingDown() || hasUnreadBody(request, maxBodyBytes);
}

/** RFC 9110, section 15.5.6: a known path says which methods it takes. */
function noRoute(allowed: LifecycleOptions["allowed"], path: string): Response {
  const allow = allowed.get(path);
  if (allow === undefined) return errorResponse(new PlantStoreError("unknown_path"));
  return errorResponse(new PlantStoreError("method_not_allowed"), { allow });
}

/** Any other error is an internal error: its cause is for the log only. */
function asPlantStoreError(error: unknown): PlantStoreError {
  if (error instanceof PlantStoreError) return error;
  return new PlantStoreError("internal", undefined, { cause: error });
}
