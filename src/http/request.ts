/** The path of a request's URL, and nothing of its query: cheaper than parsing the whole URL. */
export function pathOf({ url }: Request): string {
  const start = startOfPath(url);
  const query = url.indexOf("?", start);
  return url.slice(start, query === -1 ? undefined : query);
}

/** Bun gives a bare path where the Host header is empty, missing (HTTP/1.0) or no host at all. */
function startOfPath(url: string): number {
  return url.startsWith("/") ? 0 : url.indexOf("/", AFTER_SCHEME);
}

/** "http://" has one character less; then this is the first of the host, which is no slash. */
const AFTER_SCHEME = "https://".length;

/** Elysia looks for the path from the eleventh character of the URL on: "http://x/" is too short for it. */
const SHORTEST_ORIGIN = 11;

/** The same request under a URL that Elysia can route. The host means nothing to this service, so any one does. */
export function withRoutableUrl(request: Request): Request {
  const start = startOfPath(request.url);
  if (start >= SHORTEST_ORIGIN) return request;
  return new Request(`http://localhost${request.url.slice(start)}`, request);
}

/** What clients and proxies send as ids: a UUID, a ULID, a trace id. Anything else could forge a line of the log. */
const REQUEST_ID_PATTERN = /^[\w.:/+=@-]{1,128}$/;

/** A request's own id, if it is sane, or a new one. */
export function requestIdOf({ headers }: Request): string {
  const own = headers.get(REQUEST_ID);
  return own !== null && REQUEST_ID_PATTERN.test(own) ? own : crypto.randomUUID();
}

/** The header that names a request, in it and in its response. */
export const REQUEST_ID = "x-request-id";
