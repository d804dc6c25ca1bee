import { hash } from "node:crypto";

import type { Refused } from "./authenticate.ts";

const PREFIX = "plant_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_CHARACTERS = 32;
const CHECK_CHARACTERS = 6;

/**
 * Creates a bearer token: a prefix that people and secret scanners recognize, 190 random bits, and
 * a checksum that detects mistyped tokens. Its characters need no quotes in a shell or a header
 * (RFC 6750, section 2.1).
 *
 * @returns The token, for its bearer only, and its SHA-256 digest, to be stored.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mintToken } from "plant-store";
 *
 * const { token, digest } = mintToken();
 *
 * assert.match(token, /^plant_\w{38}$/);
 * assert.equal(digest.length, 32);
 * ```
 */
export function mintToken(): { readonly token: string; readonly digest: Uint8Array } {
  let characters = "";
  while (characters.length < RANDOM_CHARACTERS) {
    const bytes = crypto.getRandomValues(new Uint8Array(RANDOM_CHARACTERS));

    // 248 is the largest multiple of 62 below 256: with larger bytes some characters would be more
    // likely.
    characters += spell(bytes.filter((byte) => byte < 248));
  }

  const text = PREFIX + characters.slice(0, RANDOM_CHARACTERS);
  const token = text + checksum(text);
  return { token, digest: hash("sha256", token, "buffer") };
}

/**
 * Returns the verdict on a token that is neither stored nor static. A token with our prefix and a
 * wrong checksum is mistyped. One that is too long is not hashed.
 */
export function unknownToken(token: string): Refused {
  const isForeign = !token.startsWith(PREFIX);
  if (token.length > MAX_TOKEN_LENGTH) return { ok: false, reason: "too long", isForeign };

  const [text, check] = [token.slice(0, -CHECK_CHARACTERS), token.slice(-CHECK_CHARACTERS)];
  const isMistyped = !isForeign && check !== checksum(text);
  return { ok: false, reason: isMistyped ? "mistyped" : "unknown", isForeign };
}

function checksum(text: string): string {
  return spell(hash("sha256", text, "buffer").subarray(0, CHECK_CHARACTERS));
}

function spell(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/** The shortest token that people may choose. */
const MIN_STATIC_CHARACTERS = 16;

/** The maximum length of a token, in characters. A longer one is refused before it is hashed. */
export const MAX_TOKEN_LENGTH = 8_192;

/**
 * Returns why a token that a person chose cannot be used, in words that follow its name;
 * `undefined` if it can.
 */
export function staticTokenFault(token: string): string | undefined {
  if (token.length < MIN_STATIC_CHARACTERS)
    return `has fewer than ${MIN_STATIC_CHARACTERS} characters`;
  if (token.length > MAX_TOKEN_LENGTH) return `has more than ${MAX_TOKEN_LENGTH} characters`;

  // RFC 6750, section 2.1: clients can send no others.
  return /^[\w\-.~+/]+=*$/.test(token)
    ? undefined
    : "has characters that a bearer token cannot have";
}

/**
 * Returns a SHA-256 digest in base64, as the key of a `Map`. The lookup need not take constant
 * time: a client chooses the token, not the digest, so it cannot approach a stored digest step by
 * step.
 */
export function digestKey(digest: Uint8Array): string {
  // ES2026, and ten times as fast; Node 22 does not have it.
  return digest.toBase64?.() ?? btoa(String.fromCharCode(...digest));
}
