import { eventLoopTurn } from "../async/timers.ts";
import { PlantStoreError } from "../errors.ts";

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
    prepared ??= prepare(load).catch((error: unknown) => {
      prepared = undefined;
      throw error;
    });
    const { content, gzip, digest } = await prepared;

    // A client that names gzip takes it: no browser or proxy sends `gzip;q=0`.
    const isGzip = gzip !== undefined && requested.get("accept-encoding")?.includes("gzip");
    // Two representations, two validators (RFC 9110, section 8.8.3.3).
    const etag = `"${digest}${isGzip ? "-gzip" : ""}"`;
    const common = {
      ...headers,
      etag,
      "cache-control": "no-cache",
      ...(gzip && { vary: "accept-encoding" }),
    };

    // Finds it in a list, and after the `W/` of a proxy that compresses by itself.
    const known = requested.get("if-none-match");
    if (known === "*" || known?.includes(etag)) {
      return new Response(null, { status: 304, headers: common });
    }

    const all = { ...common, "content-type": type, ...(isGzip && { "content-encoding": "gzip" }) };
    if (isGzip) return new Response(gzip, { headers: all });
    if (content.size < LARGE_BYTES) return new Response(content, { headers: all });

    // Requests that waited for the same load resume together. Yield, so that each counts those before it.
    await eventLoopTurn();
    if (sendingLarge >= MAX_SENDING_LARGE) throw new PlantStoreError(...TOO_MANY);

    const length = { "content-length": String(content.size) };
    return new Response(countedStream(content), { headers: { ...all, ...length } });
  };
}

/** Size from which a response to a slow reader is costly, in bytes. */
const LARGE_BYTES = 65_536;

/**
 * Maximum number of large responses without gzip in flight. The files are public, and a slow reader
 * keeps waking the event loop. Browsers take gzip.
 */
const MAX_SENDING_LARGE = 8;

let sendingLarge = 0;

const TOO_MANY = [
  "queue_full",
  "too many large files are being sent; accept gzip, or try again later",
] as const;

/** A file that counts as being sent from its first byte until its last one, or until its reader is gone. */
function countedStream(content: Blob): ReadableStream<Uint8Array> {
  const reader = content.stream().getReader();
  let isCounted = false;

  const count = (isSending: boolean) => {
    if (isSending === isCounted) return;
    isCounted = isSending;
    sendingLarge += isSending ? 1 : -1;
  };

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        count(true);
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);

        count(false);
        controller.close();
      },
      cancel(reason) {
        count(false);
        return reader.cancel(reason);
      },
    },
    // A response that nobody reads, such as that to HEAD, does not count.
    { highWaterMark: 0 },
  );
}

/** Loads a file, compresses it, and makes the digest that its ETag has. */
async function prepare(load: () => Promise<Blob>) {
  const content = await load();
  const compressing = content.stream().pipeThrough(new CompressionStream("gzip"));
  const gzip = new Uint8Array(await new Response(compressing).arrayBuffer());

  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", gzip));
  const bytes = Array.from(hash.subarray(0, 16));
  const digest = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");

  // A picture is compressed already.
  return { content, gzip: gzip.length < content.size ? gzip : undefined, digest };
}
