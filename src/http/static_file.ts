import { prefersGzip } from "./negotiation.ts";

/** A file that stays the same while the program runs. */
export interface StaticFileOptions {
  /** Its media type. */
  readonly type: string;
  /** Headers of its responses, beside those of what is negotiated and cached here. */
  readonly headers: Readonly<Record<string, string>>;
  /** Gives the content: once, when it is first asked for. */
  readonly load: () => Promise<Blob>;
}

/** Answers requests for one file, by their headers. */
export type StaticFile = (headers: Headers) => Promise<Response>;

/**
 * Serves a file: with gzip to clients that accept it, and with an ETag, so that a client that has it already gets a 304
 * (RFC 9110, section 13). It is compressed once, when first asked for, beside the event loop.
 */
export function staticFile({ type, headers, load }: StaticFileOptions): StaticFile {
  const prepared = once(async () => await prepare(await load()));
  return async (requested) => {
    const { content, gzip, digest } = await prepared();
    const isGzip = gzip !== undefined && prefersGzip(requested.get("accept-encoding"));
    // Two representations, two validators (RFC 9110, section 8.8.3.3).
    const etag = `"${digest}${isGzip ? "-gzip" : ""}"`;
    const common = { ...headers, etag, "cache-control": "no-cache", ...(gzip && { vary: "accept-encoding" }) };
    if (isKnown(etag, requested.get("if-none-match"))) return new Response(null, { status: 304, headers: common });
    const all = { ...common, "content-type": type, ...(isGzip && { "content-encoding": "gzip" }) };
    return new Response(isGzip ? gzip : content, { headers: all });
  };
}

interface Prepared {
  readonly content: Blob;
  /** Where that is smaller; a picture is compressed already. */
  readonly gzip: Uint8Array<ArrayBuffer> | undefined;
  readonly digest: string;
}

async function prepare(content: Blob): Promise<Prepared> {
  const compressing = content.stream().pipeThrough(new CompressionStream("gzip"));
  const gzip = new Uint8Array(await new Response(compressing).arrayBuffer());
  return { content, gzip: gzip.length < content.size ? gzip : undefined, digest: await digestOf(gzip) };
}

/** The first half of the SHA-256, in hexadecimal. */
async function digestOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** RFC 9110, section 13.1.2: a list of validators, compared weakly. */
function isKnown(etag: string, ifNoneMatch: string | null): boolean {
  const tags = ifNoneMatch?.split(",").map((tag) => tag.trim().replace(/^W\//, "")) ?? [];
  return tags.includes(etag) || tags.includes("*");
}

/** Calls `make` when first asked, and again only where that failed. */
function once<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let made: Promise<Value> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}
