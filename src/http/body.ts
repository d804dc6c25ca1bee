import { safeParse } from "fast-content-type-parse";

import { PlantStoreError, requireNumber } from "../errors.ts";

/** Reads request bodies up to a maximum size. */
export interface BodyReader {
  /**
   * Reads the body of a request. Checks the media type first, then Content-Length. Without a valid
   * Content-Length, counts the bytes.
   *
   * @param headers From Elysia's context: reading `request.headers` costs more.
   * @throws {PlantStoreError} `unsupported_media_type`, `body_too_large`, `malformed_json` if the
   *   body is truncated, or `malformed_request` if the client expects a 100 that Bun does not send.
   * @throws {Error} If something else has read the body.
   */
  readonly read: (request: Request, headers: ReadHeaders) => Promise<Uint8Array>;

  /**
   * Whether an unread body may be over the limit. If so, the connection has to close: Bun would
   * otherwise read the rest without a limit.
   */
  readonly hasUnread: (request: Request) => boolean;
}

/**
 * Creates a reader of request bodies.
 *
 * @param maxBytes The maximum size of a body, in bytes.
 * @throws {TypeError} If `maxBytes` is not a number of bytes.
 */
export function bodyReader(maxBytes = 65_536): BodyReader {
  requireNumber("maxBodyBytes", maxBytes);

  return {
    // Not an async function: each further promise costs as much as parsing the plant.
    read(request, headers) {
      requireJson(headers);

      const isChunked = headers["transfer-encoding"] !== undefined;
      const length = isChunked ? Number.NaN : bodyLength(headers["content-length"]);
      if (length > maxBytes) throw tooLarge(maxBytes);
      requireSent(headers["expect"]);

      // Reading at once is several times cheaper than a stream, and safe if the length is known to
      // be within the limit. Otherwise the bytes are counted as they arrive: a chunked body has no
      // length, and two lengths count as none. `arrayBuffer()` would work in more adapters for
      // Node, but costs a microsecond more on Bun.
      const reading = length <= maxBytes ? request.bytes() : readCounted(request.body, maxBytes);
      return reading.then((bytes) => {
        if (bytes.length > maxBytes) throw tooLarge(maxBytes);
        return bytes;
      }, rethrowAsCause);
    },

    hasUnread({ bodyUsed, headers }) {
      if (bodyUsed) return false;
      if (headers.has("transfer-encoding")) return true;
      const length = headers.get("content-length");
      return length !== null && !(bodyLength(length) <= maxBytes);
    },
  };
}

/** Headers by their names in lower case. Several headers of one name are joined by a comma. */
type ReadHeaders = Readonly<Record<string, string | undefined>>;

function requireJson(headers: ReadHeaders): void {
  const contentType = headers["content-type"];
  if (contentType !== "application/json" && !isJsonInUtf8(contentType)) {
    throw new PlantStoreError("unsupported_media_type");
  }
  if (headers["content-encoding"] !== undefined) {
    throw new PlantStoreError(
      "unsupported_media_type",
      "the body must not have a Content-Encoding",
    );
  }
}

/**
 * Whether a Content-Type is JSON in UTF-8. Ignores case and other parameters (RFC 9110, section
 * 8.3).
 */
function isJsonInUtf8(contentType = ""): boolean {
  const { type, parameters } = safeParse(contentType);
  return (
    type === "application/json" && (parameters["charset"] ?? "utf-8").toLowerCase() === "utf-8"
  );
}

/**
 * Refuses an `Expect` that Bun ignores because of its case: the client would wait in vain for a 100
 * (RFC 9110, section 10.1.1).
 */
function requireSent(expect: string | undefined): void {
  if (isBun && expect !== undefined && expect !== "100-continue") {
    throw new PlantStoreError(
      "malformed_request",
      "the body was not sent: write `Expect: 100-continue` in lower case, or send no `Expect`",
    );
  }
}

/**
 * Parses a Content-Length. Returns NaN, which is neither above nor within a limit, if it is missing
 * or repeated: repeated headers arrive joined by a comma. RFC 9110, section 8.6, would allow
 * accepting equal ones.
 */
function bodyLength(contentLength = ""): number {
  return /^\d+$/.test(contentLength) ? Number(contentLength) : Number.NaN;
}

/** Whether a request says that a body follows (RFC 9112, section 6). */
export function announcesBody({ headers }: Request): boolean {
  return headers.has("transfer-encoding") || (headers.get("content-length") ?? "0") !== "0";
}

/**
 * Whether a request announces trailers (RFC 9110, section 6.6.2) that the runtime cannot read. Bun's
 * own 400 would follow or replace the response, even for a plant that is stored.
 */
export function hasUnreadableTrailers({ headers }: Request): boolean {
  return isBun && headers.has("trailer");
}

/**
 * Only Bun's HTTP parser cannot handle trailers, or `Expect: 100-Continue` with a capital letter.
 */
const isBun = "Bun" in globalThis;

/** Reads a body of unknown length, and counts its bytes as they arrive. */
async function readCounted(
  body: ReadableStream<Uint8Array> | null,
  maxBytes: number,
): Promise<Uint8Array> {
  let bytes = new Uint8Array(1_024);
  let size = 0;
  if (body === null) return bytes.subarray(0, 0);

  await readPieces(body, (piece) => {
    const end = size + piece.length;
    if (end > maxBytes) throw tooLarge(maxBytes);

    if (end > bytes.length)
      bytes = new Uint8Array(bytes.buffer.transfer(Math.min(2 * end, maxBytes)));
    bytes.set(piece, size);
    size = end;
    return true;
  });
  return bytes.subarray(0, size);
}

/** How many pieces of any size are read: each costs about a microsecond. */
const FEW_PIECES = 256;

/** The minimum average size of further pieces, in bytes: less than a network packet holds. */
const PIECE_BYTES = 512;

/**
 * Reads a body in pieces, as they arrive. If it stops early, it does not cancel the body: Node's
 * adapter would go on writing to the stream, and throw.
 *
 * The reader does not pause between pieces: during a pause, Bun joins one-byte chunks into a mebibyte,
 * which costs 40 milliseconds.
 *
 * @param take Receives a piece, and returns whether to continue.
 * @throws {PlantStoreError} `body_too_large` if there are too many pieces for so few bytes.
 * @throws Whatever the body or `take` throws.
 */
export async function readPieces(
  body: ReadableStream<Uint8Array>,
  take: (piece: Uint8Array) => boolean,
): Promise<void> {
  const reader = body.getReader();

  try {
    let piecesLeft = FEW_PIECES;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;

      piecesLeft += value.length / PIECE_BYTES - 1;
      if (piecesLeft < 0)
        throw new PlantStoreError("body_too_large", "the body must come in larger chunks");
      if (!take(value)) return;
    }
  } finally {
    reader.releaseLock();
  }
}

/**
 * Translates an error from reading a body, and throws the result.
 *
 * - 413: a framework around the app has a limit of its own, below this one.
 * - A TypeError: something read the body before (Fetch standard, section 5.3). That is a bug of the
 *   program: the plant may be valid, and the client must retry.
 * - Anything else: the client is gone.
 */
function rethrowAsCause(cause: unknown): never {
  if (cause instanceof PlantStoreError) throw cause;
  if ((cause as { readonly status?: unknown } | undefined)?.status === 413)
    throw new PlantStoreError("body_too_large", undefined, { cause });
  if (cause instanceof TypeError)
    throw new Error("the body was read before the app got it: mount it above body parsers", {
      cause,
    });

  throw new PlantStoreError("malformed_json", "the body did not arrive completely", { cause });
}

function tooLarge(maxBytes: number): PlantStoreError {
  return new PlantStoreError("body_too_large", `the body must have at most ${maxBytes} bytes`);
}
