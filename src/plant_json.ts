import { PlantStoreError } from "./errors.ts";
import { parseExactJson } from "./exact_json.ts";

// A byte order mark is dropped, as RFC 8259, section 8.1 allows and `Request.json` does.
const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Decodes UTF-8 (RFC 3629), strictly.
 *
 * @throws {PlantStoreError} `malformed_json` if the bytes are anything else.
 */
export function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (cause) {
    throw new PlantStoreError("malformed_json", "the body must be UTF-8", { cause });
  }
}

/**
 * Parses JSON with an exact `id`.
 *
 * @throws {PlantStoreError} `malformed_json` if the text is not JSON.
 */
export function parseJson(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch (cause) {
    // A parser quotes what it stumbled over; a body must not come back, so its words stay in `cause`.
    throw new PlantStoreError("malformed_json", undefined, { cause });
  }
}
