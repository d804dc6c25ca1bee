import type { Handle } from "./observer.ts";
import { REQUEST_ID } from "./request.ts";

/** Which pages of other origins may call (Fetch standard, section 3.2). */
export interface CorsOptions {
  /** Their origins, such as `https://app.example.org`. */
  readonly origins: ReadonlySet<string>;
  /** The methods of each path that exists. */
  readonly methods: ReadonlyMap<string, readonly string[]>;
}

/**
 * Lets pages of some other origins call, and read every response, even those of errors. A preflight of such a page
 * returns 204; a browser sends it without credentials. Every other request is handled as without CORS.
 */
export function withCors(handle: Handle, options: CorsOptions): Handle {
  return (received) => {
    const { request, path } = received;
    const origin = request.headers.get("origin");
    const isKnown = origin !== null && options.origins.has(origin);
    const methods = isKnown && isPreflight(request) ? options.methods.get(path) : undefined;
    const response = methods === undefined ? handle(received) : preflightResponse(methods);
    const finish = (finished: Response) => withCorsHeaders(finished, isKnown ? origin : undefined);
    return response instanceof Promise ? response.then(finish) : finish(response);
  };
}

function isPreflight({ method, headers }: Request): boolean {
  return method === "OPTIONS" && headers.has("access-control-request-method");
}

/** How long a browser may remember a preflight's response, in seconds: two hours are the most that browsers take. */
const MAX_AGE_S = 7_200;

function preflightResponse(methods: readonly string[]): Response {
  return new Response(null, {
    status: 204,
    headers: {
      "access-control-allow-methods": methods.join(", "),
      // A wildcard would not include Authorization (Fetch standard, section 3.2.3).
      "access-control-allow-headers": `authorization, content-type, traceparent, tracestate, ${REQUEST_ID}`,
      "access-control-max-age": String(MAX_AGE_S),
      "x-content-type-options": "nosniff",
    },
  });
}

/** What a page may read beside the few headers that it always may. */
const EXPOSED = `${REQUEST_ID}, retry-after, www-authenticate, allow`;

function withCorsHeaders(response: Response, origin: string | undefined): Response {
  // Even without an Origin: a cache must not give this response to a page.
  response.headers.append("vary", "origin");
  if (origin === undefined) return response;
  response.headers.set("access-control-allow-origin", origin);
  response.headers.set("access-control-expose-headers", EXPOSED);
  return response;
}
