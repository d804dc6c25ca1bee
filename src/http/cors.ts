import { REQUEST_ID } from "./request.ts";

/** Lets pages of other origins call, and read every response, even those of errors (Fetch standard, section 3.2). */
export interface Cors {
  /**
   * The response to a preflight of such a page, which has no credentials; `undefined` for any other request.
   *
   * @param methods Those of the path.
   */
  preflight(request: Request, methods: readonly string[]): Response | undefined;
  addHeaders(response: Response, request: Request): void;
}

/** @param origins The origins whose pages may call, such as `https://app.example.org`. */
export function corsFor(origins: readonly string[]): Cors {
  const known = new Set(origins);
  const knownOrigin = ({ headers }: Request) => {
    const origin = headers.get("origin");
    return origin !== null && known.has(origin) ? origin : undefined;
  };
  return {
    preflight(request, methods) {
      return isPreflight(request) && knownOrigin(request) !== undefined ? preflightResponse(methods) : undefined;
    },
    addHeaders({ headers }, request) {
      // Even without an Origin: a cache must not give this response to a page.
      headers.append("vary", "origin");
      const origin = knownOrigin(request);
      if (origin === undefined) return;
      headers.set("access-control-allow-origin", origin);
      headers.set("access-control-expose-headers", EXPOSED);
    },
  };
}

function isPreflight({ method, headers }: Request): boolean {
  return method === "OPTIONS" && headers.has("access-control-request-method");
}

/** How long a browser may cache the response to a preflight, in seconds. Browsers accept two hours at most. */
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

/** The headers that a page may read, besides the few that it always may. */
const EXPOSED = `${REQUEST_ID}, retry-after, www-authenticate, allow`;
