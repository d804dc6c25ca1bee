/**
 * Hashes text (in UTF-8) with SHA-256 (FIPS 180-4). Each runtime brings its own, synchronous one.
 *
 * @param into Holds the digest until the next call that is given it. @default 32 new bytes
 */
export type Sha256 = (text: string, into?: Uint8Array) => Uint8Array;

const PREFIX = "plant_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_CHARACTERS = 32;
const CHECK_CHARACTERS = 6;

/** What {@linkcode mintToken} takes its randomness from. */
export interface MintOptions {
  /** Fills bytes with cryptographically strong randomness. @default `crypto.getRandomValues` */
  readonly random?: (bytes: Uint8Array<ArrayBuffer>) => unknown;
}

/**
 * Makes a bearer token: a prefix that people and secret scanners recognise, 190 random bits, and a checksum that tells
 * a mistyped token from an unknown one; all in characters that need no quoting in a shell or a header (RFC 6750,
 * section 2.1).
 *
 * @example
 * ```ts
 * mintToken(sha256); // "plant_q0Ff…"
 * ```
 */
export function mintToken(
  sha256: Sha256,
  { random = (bytes) => crypto.getRandomValues(bytes) }: MintOptions = {},
): string {
  let characters = "";
  while (characters.length < RANDOM_CHARACTERS) {
    const bytes = new Uint8Array(RANDOM_CHARACTERS);
    random(bytes);
    // 248 is the largest multiple of 62 below 256: larger bytes would make some characters likelier.
    characters += spell(bytes.filter((byte) => byte < 248));
  }
  const token = PREFIX + characters.slice(0, RANDOM_CHARACTERS);
  return token + checksum(token, sha256);
}

/** Whether a token looks like one of ours but cannot be: somebody copied it wrongly. */
export function isMistyped(token: string, sha256: Sha256): boolean {
  if (!token.startsWith(PREFIX)) return false;
  return token.slice(-CHECK_CHARACTERS) !== checksum(token.slice(0, -CHECK_CHARACTERS), sha256);
}

function checksum(text: string, sha256: Sha256): string {
  return spell(sha256(text).subarray(0, CHECK_CHARACTERS));
}

function spell(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/**
 * Makes the search for a token among those known, by digest and in constant time: every known digest is compared to
 * its last byte, whatever came before, so the time taken tells nothing about any of them.
 *
 * @param known What is known, each with the SHA-256 digest of its token.
 */
export function tokenFinder<Known extends { readonly digest: Uint8Array }>(
  known: Iterable<Known>,
  sha256: Sha256,
): (token: string) => Known | undefined {
  const candidates = [...known];
  const digests = candidates.map(({ digest }) => digest.slice());
  // New bytes for every request's digest cost more than their comparison.
  const room = new Uint8Array(32);
  return (token) => {
    const digest = sha256(token, room);
    let found = -1;
    for (let i = 0; i < digests.length; i++) found = difference(digest, digests[i] as Uint8Array) === 0 ? i : found;
    return candidates[found];
  };
}

function difference(one: Uint8Array, other: Uint8Array): number {
  let bits = 0;
  for (let i = 0; i < 32; i++) bits |= (one[i] ?? 0) ^ (other[i] ?? 0);
  return bits;
}
