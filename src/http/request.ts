/** Elysia looks for the path from the eleventh character of the URL on: "http://x/" is too short for it. */
const SHORTEST_ORIGIN = 11;

/** "http://" is one character shorter: this is then the first of the host, which is never a slash. */
const AFTER_SCHEME = "https://".length;

/**
 * Prepares a request for Elysia's router, and returns its path. A URL with a query would be parsed on every path, and
 * no operation has one; a short host would hide the path; Bun gives a bare path where the Host header is empty or
 * missing (HTTP/1.0). Then the request's own `url` is replaced, because a second request would share the body with the first.
 * This service does not use the host, so any host will do.
 */
export function normalizeUrl(request: Request): string {
  const { url } = request;
  const start = url.startsWith("/") ? 0 : url.indexOf("/", AFTER_SCHEME);
  const query = url.indexOf("?", start);
  const path = url.slice(start, query === -1 ? undefined : query);
  if (query !== -1 || start < SHORTEST_ORIGIN) {
    Object.defineProperty(request, "url", { value: `http://localhost${path}` });
  }
  return path;
}

/** RFC 3986, section 3.2: a name, an IPv4 address or an IP literal, and a port; a name may be empty. */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]*|\[[\da-f:.]+\])(?::\d*)?$/i;

/**
 * Whether the Host header is valid by RFC 9112, section 3.2: at most one, and a host. Two of them arrive
 * joined by a comma and a space, which is in no host.
 */
export function hasValidHost({ headers }: Request): boolean {
  const host = headers.get("host");
  if (host === null || host === lastValidHost) return true;
  if (!HOST.test(host)) return false;
  lastValidHost = host;
  return true;
}

/** Nearly all requests to a server have the same: a comparison costs less than the pattern. */
let lastValidHost: string | undefined;

/** What clients and proxies send as ids: a UUID, a ULID, a trace id. Anything else could forge a line of the log. */
const REQUEST_ID_PATTERN = /^[\w.:/+=@-]{1,128}$/;

/** A request's own id, if it matches {@linkcode REQUEST_ID_PATTERN}, or a new one. */
export function requestIdOf({ headers }: Request): string {
  const own = headers.get(REQUEST_ID);
  return own !== null && REQUEST_ID_PATTERN.test(own) ? own : crypto.randomUUID();
}

/** The header that names a request, in it and in its response. */
export const REQUEST_ID = "x-request-id";

/** The longest value of a header that is looked into: a longer one counts as absent, because parsing it costs. */
const MAX_HEADER_LENGTH = 1_000;

/** A header that a client may fill as it likes; `undefined` if it is absent, or too long to be worth its parsing. */
export function shortHeader(headers: Headers, name: string): string | undefined {
  const value = headers.get(name);
  return value === null || value.length > MAX_HEADER_LENGTH ? undefined : value;
}

/** A header in which a proxy names the client. */
export type ForwardedHeader = "X-Forwarded-For" | "Forwarded";

/**
 * The client's address as the proxy in front says it: the last one in `X-Forwarded-For` or `Forwarded` (RFC 7239). The
 * last is what the proxy itself added; a client can make up those before it.
 *
 * @returns An IP address without a port, or a name that stands for one (RFC 7239, section 6); `undefined` if the header
 * has neither.
 */
export function forwardedFor(headers: Headers, header: ForwardedHeader): string | undefined {
  const value = shortHeader(headers, header) ?? "";
  // No address holds a comma, and a quote that a client left open does not count.
  const last = value.slice(value.lastIndexOf(",") + 1);
  const node = header === "Forwarded" ? /(?:^|;) *for=([^;]*)/i.exec(last)?.[1] : last;
  const { ipv4, bracketed, ipv6 = bracketed, name } = NODE.exec(node?.trim() ?? "")?.groups ?? {};
  if (ipv6 !== undefined) return URL.canParse(`http://[${ipv6}]`) ? ipv6 : undefined;
  if (ipv4?.split(".").some((octet) => Number(octet) > 255)) return undefined;
  return ipv4 ?? name;
}

/** RFC 7239, section 6: IPv4 or IPv6 (in brackets, or bare in `X-Forwarded-For`), with a port or without, or a name. */
const NODE =
  /^"?(?:(?<ipv4>\d{1,3}(?:\.\d{1,3}){3})(?::\w+)?|\[(?<bracketed>[\da-f:.]+)\](?::\w+)?|(?<ipv6>[\da-f]*:[\da-f:.]+)|(?<name>unknown|_[\w.-]{1,63}))"?$/i;
