import { REQUEST_ID } from "./request.ts";

/** Lets pages of other origins call, and read every response, even those of errors (Fetch standard, section 3.2). */
export interface Cors {
  /**
   * The response to a preflight of such a page, which a browser sends without credentials; nothing to any other
   * request.
   *
   * @param methods Those of the path.
   */
  preflight(request: Request, methods: readonly string[]): Response | undefined;
  /** Adds the headers of CORS to a response. */
  addHeaders(response: Response, request: Request): void;
}

/** @param origins Whose pages may call, such as `https://app.example.org`. */
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
