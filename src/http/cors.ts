/**
 * Lets pages of other origins call the API, and read every response, including errors (Fetch
 * standard, section 3.2).
 */
export type Cors = ReturnType<typeof corsFor>;

/**
 * How long a browser may cache the response to a preflight, in seconds. Browsers accept two hours
 * at most.
 */
const MAX_AGE_S = 7_200;

/** The response headers that a page may read, in addition to the safelisted ones. */
const EXPOSED = "x-request-id, retry-after, www-authenticate, allow";

/**
 * Creates the rules for pages of other origins.
 *
 * @param origins The origins whose pages may call, such as `https://app.example.org`.
 * @throws {TypeError} If an origin is not in the form that browsers send, and would match no page.
 */
export function corsFor(origins: readonly string[]) {
  if (!Array.isArray(origins) || !origins.every(isOrigin)) {
    const expected = "expected a list of origins such as https://app.example.org, without a path";
    throw new TypeError(`Cannot use \`corsOrigins\` ${JSON.stringify(origins)}: ${expected}`);
  }

  const known = new Set(origins);
  return {
    /**
     * Returns the response to a preflight of such a page, which has no credentials; `undefined` for
     * any other request.
     *
     * @param methods The methods of the path, as in `Allow`.
     */
    preflight({ method, headers }: Request, methods: string): Response | undefined {
      if (method !== "OPTIONS" || !headers.has("access-control-request-method")) return undefined;
      if (!known.has(headers.get("origin") ?? "")) return undefined;

      return new Response(null, {
        status: 204,
        headers: {
          "access-control-allow-methods": methods,
          "access-control-allow-headers": allowedHeaders(headers),
          "access-control-max-age": String(MAX_AGE_S),
          vary: "access-control-request-headers",
          "x-content-type-options": "nosniff",
        },
      });
    },

    addHeaders({ headers }: Response, request: Request): void {
      // Even without an Origin: a cache must not give this response to a page.
      headers.append("vary", "origin");

      const origin = request.headers.get("origin");
      if (origin === null || !known.has(origin)) return;
      headers.set("access-control-allow-origin", origin);
      headers.set("access-control-expose-headers", EXPOSED);
    },
  };
}

/** Names of headers (RFC 9110, section 5.1), as many as a browser would send. */
const HEADER_NAMES = /^[\w!#$%&'*+.^`|~, -]{1,1000}$/;

/**
 * Returns the headers that a page may send: all that it asks for. Libraries add their own, such as
 * `traceparent`, `baggage` and `sentry-trace`. That is safe: without cookies, no header gives a
 * page rights. A wildcard would not include Authorization (Fetch standard, section 3.2.3).
 */
function allowedHeaders(headers: Headers): string {
  const asked = headers.get("access-control-request-headers") ?? "";
  return HEADER_NAMES.test(asked) ? asked : "authorization, content-type, x-request-id";
}

/** RFC 6454, section 6.2: scheme and host in lower case, no default port, no path. */
function isOrigin(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && `${url.protocol}//${url.host}` === text;
}
