import {
  base64url,
  createRemoteJWKSet,
  customFetch,
  errors,
  type FetchImplementation,
  type JWK,
  type JWTHeaderParameters,
  type JWTPayload,
  jwtVerify,
  type RemoteJWKSet,
} from "jose";
import { type Semaphore, semaphore } from "../async/semaphore.ts";
import { PlantStoreError } from "../errors.ts";
import { accepted, ACCEPTED, type Authenticate, refused, type Verdict } from "./authenticate.ts";
import { MAX_TOKEN_LENGTH, type Sha256 } from "./tokens.ts";

const RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] as const;
const ELLIPTIC_CURVES = ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"] as const;

/**
 * What may sign a JWT (RFC 8725, section 3.1): neither `none` nor HMAC, for which a public key would be the secret.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { JWT_ALGORITHMS } from "plant-store";
 *
 * assert(JWT_ALGORITHMS.includes("EdDSA"));
 * ```
 */
export const JWT_ALGORITHMS = [...RSA, ...ELLIPTIC_CURVES] as const;
/** One of {@linkcode JWT_ALGORITHMS} (RFC 7518, section 3.1; RFC 8037; RFC 9864). */
export type JwtAlgorithm = (typeof JWT_ALGORITHMS)[number];

/** Which JSON Web Tokens {@linkcode jwtAuthenticator} accepts, and what it needs. */
export interface JwtOptions {
  /** Where the identity provider publishes its keys: a JWK Set (RFC 7517, section 5). */
  readonly jwksUrl: URL;
  /** The `iss` of accepted tokens, exactly. */
  readonly issuer: string;
  /** What the `aud` of accepted tokens is or contains, exactly. */
  readonly audience: string;
  /**
   * The name that the `scope` of a token must contain (RFC 9068, section 2.2.3), or its `scp` if it has no `scope`. The
   * bearer of any other token may do nothing. @default every token may do everything
   */
  readonly scope?: string | undefined;
  /** The algorithms of accepted signatures. @default all of {@linkcode JWT_ALGORITHMS} */
  readonly algorithms?: readonly JwtAlgorithm[] | undefined;
  readonly sha256: Sha256;
  /** Fetches the keys. @default the platform's `fetch` */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /** Called with the reason when keys could not be fetched, at most once a cooldown; cached keys may still be used. */
  readonly onKeysUnavailable?: (cause: unknown) => void;
  /** The time at which tokens are validated. @default the system's */
  readonly clock?: () => Date;
  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: () => number;
}

/**
 * Accepts the JSON Web Tokens (RFC 7519) that an identity provider signs for this service, by the rules of RFC 8725:
 * asymmetric signatures only, `iss`, `aud` and `exp` required, `nbf` honoured, 30 seconds of clock skew.
 *
 * The first token fetches the keys. They are fetched again:
 * - in the background, if they are more than 5 minutes old;
 * - at once, for a key that is not cached;
 * - at most every 10 seconds, whatever tokens arrive.
 *
 * While the provider is unreachable, the cached keys are used for 24 hours. Otherwise, a key that the provider withdrew is
 * accepted for at most 10 minutes.
 *
 * An accepted token is not verified again until it expires or the provider's keys change. Half of the processors verify at
 * once, so that forged tokens cannot slow down all other requests.
 *
 * @returns A function that validates a token. It returns no promise if the token is remembered, or refused by its form. It
 * throws or rejects only with a {@linkcode PlantStoreError} `queue_full`, if more than 1,000 tokens wait to be verified or
 * for keys.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { jwtAuthenticator, sha256 } from "plant-store";
 *
 * const authenticate = jwtAuthenticator({
 *   jwksUrl: new URL("https://id.example.com/jwks"),
 *   issuer: "https://id.example.com/",
 *   audience: "plant-store",
 *   sha256,
 * });
 *
 * assert.deepEqual(await authenticate("no-jwt"), { ok: false, reason: "not a JWT" });
 * ```
 */
export function jwtAuthenticator(options: JwtOptions): Authenticate {
  const { algorithms = JWT_ALGORITHMS, sha256 } = options;
  const safe = JWT_ALGORITHMS.filter((algorithm) => algorithms.includes(algorithm));
  const verifier = new Verifier(options, safe);
  return (token) => {
    if (token.length > MAX_TOKEN_LENGTH) return refused("too long" satisfies JwtRefusal);
    const digest = sha256(token, "base64");
    const known = verifier.recall(digest);
    if (known !== undefined) return known;
    const header = readHeader(token, safe);
    return typeof header === "string" ? refused(header) : verifier.verify(token, digest, header);
  };
}

/** Whether a token has the three parts of a signed JWT (RFC 7515, section 7.1). */
export function isCompact(token: string): boolean {
  const secondDot = token.indexOf(".", token.indexOf(".") + 1);
  return secondDot > 0 && !token.includes(".", secondDot + 1);
}

/** Why a token is refused: the closed list. No reason has a part of the token. */
type JwtRefusal =
  | "too long"
  | "not a JWT"
  | "malformed"
  | "algorithm not accepted"
  | "type not accepted"
  | "keys unavailable"
  | "unknown key"
  | "ambiguous key"
  | "unusable key"
  | "bad signature"
  | "wrong issuer"
  | "wrong audience"
  | "no expiry"
  | "expired"
  | "not yet valid";

/** The header of a token, or why the token is refused, as far as that needs neither a key nor the signature. */
function readHeader(token: string, algorithms: readonly string[]): JWTHeaderParameters | JwtRefusal {
  if (!COMPACT.test(token)) return "not a JWT";
  const header = parseHeader(token.slice(0, token.indexOf(".")));
  if (header === undefined) return "malformed";
  const { alg, crit, kid, typ } = header;
  if (typeof alg !== "string" || !algorithms.includes(alg)) return "algorithm not accepted";
  if (typ !== undefined && !(typeof typ === "string" && TYPE.test(typ))) return "type not accepted";
  // RFC 7515, section 4.1.11: no extension is understood here.
  if (crit !== undefined || !(kid === undefined || typeof kid === "string")) return "malformed";
  return kid === undefined ? { alg } : { alg, kid };
}

/** RFC 7515, section 7.1; an empty signature is one of `none`. */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * RFC 8725, section 3.11: tokens for other purposes have another type. Access tokens have `at+jwt` (RFC 9068, section 2.1),
 * but many providers send `JWT` or none. The prefix is optional (RFC 7515, section 4.1.9).
 */
const TYPE = /^(?:application\/)?(?:at\+)?jwt$/i;

/**
 * More than eight arrays and objects: a header is one, and may have a `jwk` and an `x5c` (RFC 7515, section 4.1). Each can
 * cost the parser as much as hundreds of characters, and whoever sends them needs no key.
 */
const TOO_MANY_CONTAINERS = /^(?:[^[{]*[[{]){9}/;

function parseHeader(encoded: string): Record<string, unknown> | undefined {
  try {
    const text = UTF8.decode(base64url.decode(encoded));
    const header: unknown = TOO_MANY_CONTAINERS.test(text) ? undefined : JSON.parse(text);
    const isObject = typeof header === "object" && header !== null && !Array.isArray(header);
    return isObject ? (header as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const UTF8 = new TextDecoder();

/** How many accepted tokens are remembered, in 2 MB. Refused ones are not: they would evict the accepted ones. */
const MAX_REMEMBERED = 10_000;

/** How many tokens may wait to be verified. Even the slowest signatures, 2 ms each, take 2 seconds together. */
const MAX_VERIFYING = 1_000;

const CLOCK_SKEW_SECONDS = 30;

const WITHOUT_SCOPES = accepted([]);

interface Remembered {
  readonly verdict: Verdict;
  /** The edition of the provider's keys by which it was verified. */
  readonly edition: number;
  /** In milliseconds since 1970 UTC. */
  readonly expiresAt: number;
}

/** Verifies tokens by their signature and claims, and remembers those that it accepted. */
class Verifier {
  readonly #options: JwtOptions;
  readonly #algorithms: JwtAlgorithm[];
  readonly #clock: () => Date;
  readonly #keys: ProviderKeys;
  /** By the token's digest, the oldest first. */
  readonly #remembered = new Map<string, Remembered>();
  /** Tokens that wait for keys, or to be verified, by digest. */
  readonly #inFlight = new Map<string, Promise<Verdict>>();
  readonly #withPermit: Semaphore = semaphore(Math.max(1, Math.floor(navigator.hardwareConcurrency / 2)));
  #verifying = 0;

  constructor(options: JwtOptions, algorithms: JwtAlgorithm[]) {
    this.#options = options;
    this.#algorithms = algorithms;
    this.#clock = options.clock ?? (() => new Date());
    this.#keys = new ProviderKeys(options);
  }

  /** The verdict on a token that was accepted and still is, or that of one in flight. */
  recall(digest: string): Verdict | Promise<Verdict> | undefined {
    const known = this.#remembered.get(digest);
    if (known === undefined) return this.#inFlight.get(digest);
    const isCurrent = this.#keys.areUsable() && this.#keys.edition === known.edition;
    if (isCurrent && this.#clock().getTime() < known.expiresAt) return known.verdict;
    this.#remembered.delete(digest);
    return undefined;
  }

  verify(token: string, digest: string, header: JWTHeaderParameters): Promise<Verdict> {
    const verdict = this.#verify(token, digest, header).finally(() => this.#inFlight.delete(digest));
    this.#inFlight.set(digest, verdict);
    return verdict;
  }

  async #verify(token: string, digest: string, header: JWTHeaderParameters): Promise<Verdict> {
    try {
      const { key, edition } = await this.#keys.find(header);
      const payload = await this.#verifySignature(token, key);
      const verdict = isGranted(payload, this.#options.scope) ? ACCEPTED : WITHOUT_SCOPES;
      const expiresAt = ((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) * 1_000;
      this.#remember(digest, { verdict, edition, expiresAt });
      return verdict;
    } catch (error) {
      if (error instanceof PlantStoreError) throw error;
      return refused(refusalOf(error));
    }
  }

  async #verifySignature(token: string, key: CryptoKey): Promise<JWTPayload> {
    if (this.#verifying >= MAX_VERIFYING) throw tooMany("to be verified");
    this.#verifying++;
    try {
      const { audience, issuer } = this.#options;
      const rules = { algorithms: this.#algorithms, audience, issuer, requiredClaims: ["exp"] };
      const { payload } = await this.#withPermit(() =>
        jwtVerify(token, key, { ...rules, clockTolerance: CLOCK_SKEW_SECONDS, currentDate: this.#clock() }),
      );
      return payload;
    } finally {
      this.#verifying--;
    }
  }

  #remember(digest: string, token: Remembered): void {
    this.#remembered.set(digest, token);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    const [oldest = digest] = this.#remembered.keys();
    this.#remembered.delete(oldest);
  }
}

function tooMany(what: string): PlantStoreError {
  return new PlantStoreError("queue_full", `too many JWTs wait ${what}; send the plant again later`);
}

/**
 * RFC 8693, section 4.2: `scope` has names with spaces between them. Microsoft Entra sends the same as `scp`, and Okta
 * sends a list of names.
 */
function isGranted({ scope, scp }: JWTPayload, required: string | undefined): boolean {
  if (required === undefined) return true;
  const names = scope === undefined ? scp : scope;
  if (typeof names === "string") return names.split(" ").includes(required);
  return scope === undefined && Array.isArray(scp) && scp.includes(required);
}

function refusalOf(error: unknown): JwtRefusal {
  if (error instanceof KeysUnavailable) return "keys unavailable";
  if (error instanceof errors.JWTClaimValidationFailed) {
    return REFUSAL_BY_CLAIM[`${error.claim} ${error.reason}`] ?? "malformed";
  }
  if (error instanceof errors.JOSEError) return REFUSAL_BY_CODE[error.code] ?? "malformed";
  // Web Cryptography or jose cannot use the key for the algorithm: a plain TypeError or DOMException.
  return "unusable key";
}

const REFUSAL_BY_CODE: Readonly<Record<string, JwtRefusal>> = {
  [errors.JWKSNoMatchingKey.code]: "unknown key",
  [errors.JWKSMultipleMatchingKeys.code]: "ambiguous key",
  [errors.JWKSInvalid.code]: "unusable key",
  [errors.JWSSignatureVerificationFailed.code]: "bad signature",
  [errors.JWTExpired.code]: "expired",
};

const REFUSAL_BY_CLAIM: Readonly<Record<string, JwtRefusal>> = {
  "iss missing": "wrong issuer",
  "iss check_failed": "wrong issuer",
  "aud missing": "wrong audience",
  "aud check_failed": "wrong audience",
  "exp missing": "no expiry",
  "nbf check_failed": "not yet valid",
};

// The ages of cached keys, in milliseconds since the provider confirmed them, as RFC 5861 names them.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used and fetched again in the background: no request waits for a fetch. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails; older ones never. An attacker who blocks the connection to the provider can
 * keep a withdrawn key in use for this long at most.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/** Between the starts of two fetches, in milliseconds: tokens with random key ids must not flood the provider. */
const COOLDOWN_MS = 10_000;

/** How many tokens may wait for a fetch. They have a count of their own: a slow provider delays no token whose key is cached. */
const MAX_WAITING_FOR_KEYS = 1_000;

/** The provider's keys could not be fetched, and the cached ones do not have the key. */
class KeysUnavailable extends Error {
  override readonly name = "KeysUnavailable";
}

/**
 * The keys that an identity provider publishes. jose fetches, parses and selects them. This class decides when to fetch, and
 * how long to use them: jose uses no old keys while the provider is unreachable, and has no cooldown after a failed fetch.
 */
class ProviderKeys {
  /** Counts up when the provider publishes other keys than before. */
  edition = 0;
  readonly #jwks: RemoteJWKSet;
  readonly #monotonic: () => number;
  readonly #onUnavailable: (cause: unknown) => void;
  #fingerprint: string | undefined;
  /** When the fetch of the cached keys began, by `monotonic`. */
  #confirmedAt = Number.NEGATIVE_INFINITY;
  /** When the last fetch began, by `monotonic`. */
  #fetchedAt = Number.NEGATIVE_INFINITY;
  #fetching: Promise<void> | undefined;
  #waiting = 0;
  /** Whether the last fetch failed. */
  #isFailing = false;

  constructor({ jwksUrl, fetch, timeoutMs = 5_000, monotonic, onKeysUnavailable }: JwtOptions) {
    this.#jwks = createRemoteJWKSet(jwksUrl, {
      [customFetch]: boundedFetch(fetch ?? globalThis.fetch),
      timeoutDuration: timeoutMs,
      // It never fetches by itself.
      cacheMaxAge: Infinity,
      cooldownDuration: Infinity,
    });
    this.#monotonic = monotonic ?? (() => performance.now());
    this.#onUnavailable = onKeysUnavailable ?? (() => {});
  }

  /** Whether cached keys may be used without waiting. Begins a fetch if one is due. */
  areUsable(): boolean {
    const age = this.#age();
    if (age >= MAX_AGE_MS) void this.#revalidate();
    return age < (this.#isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS);
  }

  /**
   * Finds the key that a token's header names, after a fetch if one is necessary.
   *
   * @throws {KeysUnavailable} If keys are needed and cannot be fetched.
   * @throws {PlantStoreError} `queue_full`, if too many tokens wait for them; and otherwise what jose throws.
   */
  async find(header: JWTHeaderParameters): Promise<{ readonly key: CryptoKey; readonly edition: number }> {
    if (!this.areUsable()) await this.#waitForKeys();
    if (this.#age() >= STALE_IF_ERROR_MS) throw new KeysUnavailable();
    try {
      return await this.#select(header);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
    }
    await this.#waitForKeys();
    if (this.#isFailing) throw new KeysUnavailable();
    return this.#select(header);
  }

  async #select(header: JWTHeaderParameters) {
    const { edition } = this;
    return { key: await this.#jwks(header), edition };
  }

  #age(): number {
    return this.#monotonic() - this.#confirmedAt;
  }

  async #waitForKeys(): Promise<void> {
    const fetching = this.#revalidate();
    if (fetching === undefined) return;
    if (this.#waiting >= MAX_WAITING_FOR_KEYS) throw tooMany("for the identity provider's keys");
    this.#waiting++;
    await fetching;
  }

  /** Begins a fetch, unless one is in flight or the last one began within the cooldown. */
  #revalidate(): Promise<void> | undefined {
    const now = this.#monotonic();
    if (this.#fetching === undefined && now - this.#fetchedAt >= COOLDOWN_MS) {
      this.#fetchedAt = now;
      this.#fetching = this.#fetch();
    }
    return this.#fetching;
  }

  async #fetch(): Promise<void> {
    try {
      await this.#jwks.reload();
      const fingerprint = fingerprintOf(this.#jwks.jwks()?.keys ?? []);
      if (fingerprint !== this.#fingerprint) this.edition++;
      this.#fingerprint = fingerprint;
      // A key that was withdrawn while the response was on its way may still be in it.
      this.#confirmedAt = this.#fetchedAt;
      this.#isFailing = false;
    } catch (cause) {
      this.#isFailing = true;
      this.#onUnavailable(cause);
    } finally {
      this.#fetching = undefined;
      this.#waiting = 0;
    }
  }
}

/** What decides which tokens a key verifies (RFC 7517, section 4; RFC 7518, section 6); one with a published `d` verifies none. */
const KEY_MEMBERS = ["kty", "kid", "alg", "use", "key_ops", "ext", "crv", "x", "y", "n", "e", "d"];

/** The same text for the same keys, whatever their order and their other members. */
function fingerprintOf(keys: readonly JWK[]): string {
  return keys
    .map((key) => JSON.stringify(key, KEY_MEMBERS))
    .toSorted()
    .join();
}

/** In bytes. The largest JWK Sets in use, with certificate chains, have a tenth of it. */
const MAX_JWKS_BYTES = 262_144;

/** Refuses all but 200: a redirection could leave HTTPS. */
function boundedFetch(fetch: FetchImplementation): FetchImplementation {
  return async (url, init) => {
    const { body, status } = await fetch(url, init);
    if (status !== 200) {
      await body?.cancel();
      throw new Error(`The JWKS URL answered ${status}`);
    }
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;
    for await (const chunk of body ?? []) {
      size += chunk.length;
      if (size > MAX_JWKS_BYTES) throw new Error(`The JWK Set has more than ${MAX_JWKS_BYTES} bytes`);
      chunks.push(chunk);
    }
    return new Response(new Blob(chunks));
  };
}
