import { REQUEST_ID } from "./request.ts";

/** Which pages of other origins may call (Fetch standard, section 3.2). */
export interface CorsOptions {
  /** Their origins, such as `https://app.example.org`. */
  readonly origins: ReadonlySet<string>;
  /** The methods of a path, as the `Allow` header lists them; `undefined` where there is no such path. */
  readonly methodsOf: (path: string) => string | undefined;
}

/** An app's `fetch`. */
export type Fetch = (request: Request) => Response | Promise<Response>;

/**
 * Lets pages of some other origins call, and read every response, those of errors too. A preflight of such a page is
 * answered 204; a browser sends it without credentials. Whatever else comes, is handled as without CORS.
 */
export function withCors(fetch: Fetch, { origins, methodsOf }: CorsOptions): Fetch {
  return (request) => {
    const origin = request.headers.get("origin");
    const isKnown = origin !== null && origins.has(origin);
    const methods = isKnown && isPreflight(request) ? methodsOf(pathOf(request)) : undefined;
    const response = methods === undefined ? fetch(request) : preflightResponse(methods);
    const finish = (finished: Response) => withCorsHeaders(finished, isKnown ? origin : undefined);
    return response instanceof Promise ? response.then(finish) : finish(response);
  };
}

function isPreflight({ method, headers }: Request): boolean {
  return method === "OPTIONS" && headers.has("access-control-request-method");
}

/** Of a URL that `normalizeUrl` has normalized: it has no query. */
function pathOf({ url }: Request): string {
  return url.slice(url.indexOf("/", "https://".length));
}

/** How long a browser may remember a preflight's response, in seconds: two hours are the most that browsers take. */
const MAX_AGE_S = 7_200;

function preflightResponse(methods: string): Response {
  return new Response(null, {
    status: 204,
    headers: {
      "access-control-allow-methods": methods,
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
  // Also where there is no Origin: a cache must not give this response to a page.
  response.headers.append("vary", "origin");
  if (origin === undefined) return response;
  response.headers.set("access-control-allow-origin", origin);
  response.headers.set("access-control-expose-headers", EXPOSED);
  return response;
}
