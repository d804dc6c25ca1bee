/** A header in which a proxy names the client. */
export type ForwardedHeader = "X-Forwarded-For" | "Forwarded";

/**
 * Returns the client's address according to the proxy in front: the last one in `X-Forwarded-For`
 * or `Forwarded` (RFC 7239). The proxy itself added the last one; a client can make up those before
 * it.
 *
 * @returns An IP address without a port, or a name that stands for one (RFC 7239, section 6);
 *   `undefined` if the header has neither.
 */
export function forwardedFor(headers: Headers, header: ForwardedHeader): string | undefined {
  const value = headers.get(header) ?? "";
  // No address has a comma, so a quote that a client left open does not matter.
  const last = value.slice(value.lastIndexOf(",") + 1);
  const node = header === "Forwarded" ? /(?:^|;) *for=([^;]*)/i.exec(last)?.[1] : last;

  const { ipv4, ipv6, name } = NODE.exec(node?.trim() ?? "")?.groups ?? {};
  if (ipv6 !== undefined) return URL.canParse(`http://[${ipv6}]`) ? unmapped(ipv6) : undefined;
  if (ipv4?.split(".").some((octet) => Number(octet) > 255)) return undefined;

  return ipv4 ?? name;
}

/**
 * Returns an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2) as IPv4, and any other address
 * unchanged.
 */
export function unmapped(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}

/**
 * RFC 7239, section 6: IPv4 or IPv6 (in brackets, or bare in `X-Forwarded-For`), with a port or
 * without, or a name.
 */
const NODE =
  /^"?(?:(?<ipv4>\d{1,3}(?:\.\d{1,3}){3})(?::\w+)?|\[(?<ipv6>[\da-f:.]+)\](?::\w+)?|(?<ipv6>[\da-f]*:[\da-f:.]+)|(?<name>unknown|_[\w.-]{1,63}))"?$/i;
