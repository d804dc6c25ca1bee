/**
 * Elysia looks for the path from the eleventh character of the URL on: "http://x/" is too short for
 * it.
 */
const SHORTEST_ORIGIN = 11;

/**
 * Where to look for the slash that begins the path. After "http://", which is one character shorter,
 * this skips the first character of the host: it is never a slash.
 */
const AFTER_SCHEME = "https://".length;

/**
 * Prepares a request for Elysia's router, and returns its path. Replaces the URL of the request in
 * three cases:
 *
 * - It has a query: Elysia would parse it on every path, and no operation has one.
 * - It has a short host: Elysia would not find the path.
 * - It is a bare path: Bun gives that if the Host header is empty or missing (HTTP/1.0).
 *
 * The URL is replaced in place, because a second request would share the body with the first.
 * It stays configurable: a Proxy around a request, as in h3 and Next.js, must not report another
 * value for a property that is fixed (ECMA-262, section 10.5.8).
 * Nothing here uses the host.
 */
export function normalizeUrl(request: Request): string {
  const { url } = request;
  const start = url.startsWith("/") ? 0 : url.indexOf("/", AFTER_SCHEME);
  const query = url.indexOf("?", start);
  const path = url.slice(start, query === -1 ? undefined : query);

  if (query !== -1 || start < SHORTEST_ORIGIN) {
    Object.defineProperty(request, "url", { value: `http://localhost${path}`, configurable: true });
  }

  return path;
}

/**
 * RFC 3986, section 3.2: a name, an IPv4 address or an IP literal, and a port; a name may be empty.
 */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]*|\[[\da-f:.]+\])(?::\d*)?$/i;

/**
 * Whether the Host header is valid (RFC 9112, section 3.2): at most one, and a host. Two headers
 * arrive joined by a comma and a space, which no host has.
 */
export function hasValidHost({ headers }: Request): boolean {
  const host = headers.get("host");
  return host === null || HOST.test(host);
}

/** Bun's parser lacks two things that those of other runtimes have. */
const isBun = "Bun" in globalThis;

/**
 * Whether a request announces trailers (RFC 9110, section 6.6.2) that the runtime cannot read. Bun's
 * own 400 would follow or replace the response, even for a plant that is stored.
 */
export function hasUnreadableTrailers({ headers }: Request): boolean {
  return isBun && headers.has("trailer");
}

/**
 * Whether a client waits for a 100 that does not come (RFC 9110, section 10.1.1), and sends no body:
 * Bun compares the value with its case.
 *
 * @param expect The value of the header.
 */
export function waitsInVain(expect: string | undefined): boolean {
  return isBun && expect !== undefined && expect !== "100-continue";
}

/** Such as a UUID, a ULID or a trace id. Other characters could forge a line of the log. */
const REQUEST_ID_PATTERN = /^[\w.:/+=@-]{1,128}$/;

/** A request's own id, if it matches {@linkcode REQUEST_ID_PATTERN}, or a new one. */
export function requestIdOf({ headers }: Request): string {
  const own = headers.get(REQUEST_ID);
  return own !== null && REQUEST_ID_PATTERN.test(own) ? own : crypto.randomUUID();
}

/** The header with the id of a request, in the request and in its response. */
export const REQUEST_ID = "x-request-id";

/** The longest value of a header that is parsed for the log: a longer one counts as absent. */
const MAX_HEADER_LENGTH = 1_000;

/** A header in which a proxy names the client. */
export type ForwardedHeader = "X-Forwarded-For" | "Forwarded";

/**
 * The address of the client according to the proxy in front: the last one in `X-Forwarded-For` or
 * `Forwarded` (RFC 7239). The proxy itself added the last one; a client can make up those before
 * it.
 *
 * @returns An IP address without a port, or a name that stands for one (RFC 7239, section 6);
 *   `undefined` if the header has neither.
 */
export function forwardedFor(headers: Headers, header: ForwardedHeader): string | undefined {
  const value = headers.get(header) ?? "";
  if (value.length > MAX_HEADER_LENGTH) return undefined;

  // No address has a comma: so a quote that a client left open does not matter.
  const last = value.slice(value.lastIndexOf(",") + 1);
  const node = header === "Forwarded" ? /(?:^|;) *for=([^;]*)/i.exec(last)?.[1] : last;

  const { ipv4, bracketed, ipv6 = bracketed, name } = NODE.exec(node?.trim() ?? "")?.groups ?? {};
  if (ipv6 !== undefined) return URL.canParse(`http://[${ipv6}]`) ? ipv6 : undefined;
  if (ipv4?.split(".").some((octet) => Number(octet) > 255)) return undefined;

  return ipv4 ?? name;
}

/**
 * RFC 7239, section 6: IPv4 or IPv6 (in brackets, or bare in `X-Forwarded-For`), with a port or
 * without, or a name.
 */
const NODE =
  /^"?(?:(?<ipv4>\d{1,3}(?:\.\d{1,3}){3})(?::\w+)?|\[(?<bracketed>[\da-f:.]+)\](?::\w+)?|(?<ipv6>[\da-f]*:[\da-f:.]+)|(?<name>unknown|_[\w.-]{1,63}))"?$/i;
