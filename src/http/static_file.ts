/**
 * Serves a file that never changes: with gzip to clients that accept it, and with an ETag for a 304
 * (RFC 9110, section 13). The first request loads and compresses it, without blocking the event
 * loop.
 *
 * @param headers Sent with every response.
 */
export function staticFile(
  type: string,
  headers: Readonly<Record<string, string>>,
  load: () => Promise<Blob>,
) {
  let prepared: ReturnType<typeof prepare> | undefined;

  return async (requested: Headers): Promise<Response> => {
    prepared ??= prepare(load);
    const { content, gzip, digest } = await prepared;

    // A client that names gzip accepts it: no browser or proxy sends `gzip;q=0`.
    const isGzip = gzip !== undefined && requested.get("accept-encoding")?.includes("gzip");
    // Two representations, two validators (RFC 9110, section 8.8.3.3).
    const etag = `"${digest}${isGzip ? "-gzip" : ""}"`;
    const common = {
      ...headers,
      etag,
      "cache-control": "no-cache",
      ...(gzip && { vary: "accept-encoding" }),
    };

    // Find the ETag in a list too, and after the `W/` of a proxy that compresses responses.
    const known = requested.get("if-none-match");
    if (known === "*" || known?.includes(etag)) {
      return new Response(null, { status: 304, headers: common });
    }

    const all = { ...common, "content-type": type, ...(isGzip && { "content-encoding": "gzip" }) };
    return new Response(isGzip ? gzip : content, { headers: all });
  };
}

/** Loads a file, compresses it, and computes the digest for its ETag. */
async function prepare(load: () => Promise<Blob>) {
  const content = await load();
  const compressing = content.stream().pipeThrough(new CompressionStream("gzip"));
  const gzip = new Uint8Array(await new Response(compressing).arrayBuffer());

  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", gzip));
  const bytes = Array.from(hash.subarray(0, 16));
  const digest = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");

  // Gzip makes a picture larger: it is compressed already.
  return { content, gzip: gzip.length < content.size ? gzip : undefined, digest };
}
