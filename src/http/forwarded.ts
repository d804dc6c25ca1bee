/**
 * The client's address as the proxy in front says it: the last one in `X-Forwarded-For`, or where that is missing in
 * `Forwarded` (RFC 7239). The last is what the proxy itself added; those before it a client can make up.
 *
 * @returns An IP address without a port, or a name that stands for one (RFC 7239, section 6); `undefined` where the
 * headers have none.
 */
export function forwardedFor(headers: Headers): string | undefined {
  const node =
    lastOf(headers.get("x-forwarded-for")) ?? /(?:^|;) *for=([^;]*)/i.exec(lastOf(headers.get("forwarded")) ?? "")?.[1];
  return NODE.exec(node?.trim() ?? "")
    ?.slice(1)
    .find((address) => address !== undefined);
}

/** What is behind the last comma: no address holds one, and a quote that a client left open does not count. */
function lastOf(list: string | null): string | undefined {
  return list?.slice(list.lastIndexOf(",") + 1);
}

/** RFC 7239, section 6: IPv4 or IPv6 (in brackets, or bare in `X-Forwarded-For`), with a port or without, or a name. */
const NODE =
  /^"?(?:(\d{1,3}(?:\.\d{1,3}){3})(?::\w+)?|\[([\da-f:.]{2,45})\](?::\w+)?|([\da-f]*:[\da-f:.]{1,44})|(unknown|_[\w.-]{1,63}))"?$/i;
