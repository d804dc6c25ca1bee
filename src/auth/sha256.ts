import { hash } from "node:crypto";

/**
 * SHA-256 (FIPS 180-4) of a text in UTF-8, by `node:crypto`, which Bun, Deno and Node have: many
 * times as fast as `crypto.subtle` for short texts.
 *
 * @returns The digest, in 32 bytes.
 */
export function sha256(text: string): Uint8Array;
/** @returns The digest in base64 (RFC 4648, section 4), with its padding: the key of a token. */
export function sha256(text: string, encoding: "base64"): string;
export function sha256(
  text: string,
  encoding: "base64" | "buffer" = "buffer",
): Uint8Array | string {
  return hash("sha256", text, encoding);
}
