/** Hashes text (in UTF-8) with SHA-256 (FIPS 180-4) into 32 bytes. Each runtime brings its own, synchronous one. */
export type Sha256 = (text: string) => Uint8Array;

/** What is kept of a token: never the token itself. */
export interface TokenRecord {
  /** What people call it; unique. */
  readonly name: string;
  /** SHA-256 of the token, 32 bytes. */
  readonly digest: Uint8Array;
  /** When it was made. */
  readonly createdAt: Date;
}

/** The port behind which tokens are kept. */
export interface TokenStore {
  /** Every token kept, oldest first. */
  list(): Promise<readonly TokenRecord[]>;
  /** Keeps a token, and resolves to whether it did: a name that is taken changes nothing. */
  add(record: TokenRecord): Promise<boolean>;
}

/** The tokens that count now, in memory: checking one reads nothing. */
export interface KnownTokens {
  /** Whether this is one of them. */
  readonly check: (token: string) => boolean;
  /** How many there are. */
  readonly count: () => number;
  /** Keeps another one, which counts from then on, and resolves to whether its name was free. */
  add(record: TokenRecord): Promise<boolean>;
}

/**
 * Knows the tokens that are kept, and some more.
 *
 * @param more Tokens that are known anyhow.
 */
export async function knownTokens(store: TokenStore, more: readonly string[], sha256: Sha256): Promise<KnownTokens> {
  const fixed = more.map(sha256);
  let digests: readonly Uint8Array[] = [];
  let check = tokenChecker(digests, sha256);

  async function refresh(): Promise<void> {
    digests = [...fixed, ...(await store.list()).map(({ digest }) => digest)];
    check = tokenChecker(digests, sha256);
  }

  await refresh();
  return {
    check: (token) => check(token),
    count: () => digests.length,
    async add(record) {
      const added = await store.add(record);
      await refresh();
      return added;
    },
  };
}

const PREFIX = "plant_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_CHARACTERS = 32;

/**
 * Makes a bearer token: a prefix that people and secret scanners recognise, then 190 random bits in characters that
 * need no quoting in a shell or a header (RFC 6750, section 2.1).
 *
 * @param random Fills bytes with cryptographically strong randomness.
 *
 * @example
 * ```ts
 * mintToken(); // "plant_q0Ff…"
 * ```
 */
export function mintToken(
  random: (bytes: Uint8Array<ArrayBuffer>) => unknown = (bytes) => crypto.getRandomValues(bytes),
): string {
  let token = PREFIX;
  while (token.length < PREFIX.length + RANDOM_CHARACTERS) {
    const bytes = new Uint8Array(RANDOM_CHARACTERS);
    random(bytes);
    token += evenCharacters(bytes);
  }
  return token.slice(0, PREFIX.length + RANDOM_CHARACTERS);
}

/** 248 is the largest multiple of 62 below 256: larger bytes would make some characters likelier. */
function evenCharacters(bytes: Uint8Array): string {
  return Array.from(
    bytes.filter((byte) => byte < 248),
    (byte) => ALPHABET[byte % ALPHABET.length],
  ).join("");
}

/**
 * Makes the check of a token against those known, by digest and in constant time: every known digest is compared
 * to its last byte, whatever came before, so the time taken tells nothing about any of them.
 *
 * @param digests SHA-256 digests of the tokens that count.
 */
export function tokenChecker(digests: Iterable<Uint8Array>, sha256: Sha256): (token: string) => boolean {
  const known = Array.from(digests, (digest) => digest.slice());
  return (token) => {
    const digest = sha256(token);
    let found = 0;
    for (const candidate of known) found |= Number(difference(digest, candidate) === 0);
    return found === 1;
  };
}

function difference(one: Uint8Array, other: Uint8Array): number {
  let bits = 0;
  for (let i = 0; i < 32; i++) bits |= (one[i] ?? 0) ^ (other[i] ?? 0);
  return bits;
}
