import { safeParse } from "fast-content-type-parse";
import { PlantStoreError } from "../errors.ts";

/**
 * Reads the bytes of a request's body that says it is JSON: media type first, then size. The bytes themselves are
 * counted, so a missing or wrong Content-Length lets nothing through.
 *
 * One promise and no async functions on the way of a whole body: each would cost a plant as much as its parsing.
 *
 * @param maxBytes The most a body may have, in bytes.
 * @throws {PlantStoreError} `unsupported_media_type`, `body_too_large`, or `malformed_json` if the body breaks off.
 */
export function readJsonBody(request: Request, maxBytes: number): Promise<Uint8Array> {
  requireJson(request.headers);
  return readBytes(request, maxBytes).then((bytes) => requireSize(bytes, maxBytes), rethrowAsIncomplete);
}

function requireSize(bytes: Uint8Array, maxBytes: number): Uint8Array {
  if (bytes.length > maxBytes) throw tooLarge(maxBytes);
  return bytes;
}

function requireJson(headers: Headers): void {
  const contentType = headers.get("content-type");
  if (contentType !== "application/json" && !isJsonInUtf8(contentType)) {
    throw new PlantStoreError("unsupported_media_type");
  }
  if (headers.has("content-encoding")) {
    throw new PlantStoreError("unsupported_media_type", "the body must not have a Content-Encoding");
  }
}

/** RFC 9110, section 8.3: type, subtype and charset compare without case; other parameters do not matter. */
function isJsonInUtf8(contentType: string | null): boolean {
  const { type, parameters } = safeParse(contentType ?? "");
  return type === "application/json" && (parameters["charset"] ?? "utf-8").toLowerCase() === "utf-8";
}

/**
 * Reading at once is several times cheaper than a stream, and safe where the length is known to be within the
 * limit; without a length (chunked) the bytes are counted as they come.
 */
function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const length = request.headers.get("content-length");
  if (length === null || request.headers.has("transfer-encoding")) return readCounted(request.body, maxBytes);
  if (Number(length) > maxBytes) throw tooLarge(maxBytes);
  return request.bytes();
}

async function readCounted(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body?.getReader();
  for (let read = await reader?.read(); read?.value !== undefined; read = await reader?.read()) {
    size += read.value.length;
    if (size > maxBytes) throw cancelled(reader, tooLarge(maxBytes));
    chunks.push(read.value);
  }
  return concat(chunks, size);
}

/** Nobody waits for it, as a `for await` would: where a request was copied, it ends only after the response (Bun 1.4.5). */
function cancelled(reader: ReadableStreamDefaultReader | undefined, error: PlantStoreError): PlantStoreError {
  reader?.cancel().catch(() => {});
  return error;
}

function concat(chunks: readonly Uint8Array[], size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.length;
  }
  return bytes;
}

/** A client that goes away in the middle of its body is no fault of ours; nobody is left to read the response. */
function rethrowAsIncomplete(cause: unknown): never {
  if (cause instanceof PlantStoreError) throw cause;
  throw new PlantStoreError("malformed_json", "the body did not arrive completely", { cause });
}

function tooLarge(maxBytes: number): PlantStoreError {
  return new PlantStoreError("body_too_large", `the body must have at most ${maxBytes} bytes`);
}
