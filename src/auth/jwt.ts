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

import { semaphore } from "../async/semaphore.ts";
import { MAX_TIMER_MS, PlantStoreError, requireNumber } from "../errors.ts";
import { accepted, type Authenticate, refused, type Verdict } from "./authenticate.ts";
import { sha256 } from "./sha256.ts";
import { MAX_TOKEN_LENGTH } from "./token_format.ts";

const RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] as const;
const ELLIPTIC_CURVES = ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"] as const;

/**
 * What may sign a JWT (RFC 8725, section 3.1): neither `none` nor HMAC, for which a public key
 * would be the secret.
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
   * What the `scope` of a token must contain (RFC 9068, section 2.2.3), or its `scp` if it has no
   * `scope`. Any other token may do nothing. @default every token may do everything
   */
  readonly scope?: string | undefined;

  /** The algorithms of accepted signatures. @default all of {@linkcode JWT_ALGORITHMS} */
  readonly algorithms?: readonly JwtAlgorithm[] | undefined;

  /** Fetches the keys. @default the platform's `fetch` */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>;

  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;

  /**
   * Called with the reason when keys could not be fetched, at most once a cooldown; cached keys may
   * still be used.
   */
  readonly onKeysUnavailable?: (cause: unknown) => void;

  /** The time at which tokens are validated. @default the system's */
  readonly clock?: () => Date;

  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: () => number;
}

/**
 * Accepts the JSON Web Tokens (RFC 7519) that an identity provider signs for this service. By the
 * rules of RFC 8725, signatures are asymmetric, and `iss`, `aud` and `exp` are required. `nbf` is
 * honoured. Clocks may differ by 30 seconds.
 *
 * The first token fetches the keys. Keys older than 5 minutes are fetched again in the background.
 * A key that is not cached is fetched at once, at most every 10 seconds. A withdrawn key is
 * accepted for at most 10 minutes, or for 24 hours while the provider is unreachable.
 *
 * An accepted token is remembered until it expires or the keys change. At most half of the
 * processors verify tokens.
 *
 * @returns A function that validates a token. It returns no promise if the token is remembered, or
 *   refused by its form. It rejects only with a {@linkcode PlantStoreError} `queue_full`, if more
 *   than 1,000 tokens wait to be verified or for keys.
 * @throws {TypeError} If `issuer` or `audience` is missing: tokens for anybody would be accepted. If
 *   `algorithms` has none, or one that is not accepted: a shared secret, say.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { jwtAuthenticator } from "plant-store";
 *
 * const authenticate = jwtAuthenticator({
 *   jwksUrl: new URL("https://id.example.com/jwks"),
 *   issuer: "https://id.example.com/",
 *   audience: "plant-store",
 * });
 *
 * assert.deepEqual(await authenticate("no-jwt"), { ok: false, reason: "not a JWT" });
 * ```
 */
export function jwtAuthenticator(options: JwtOptions): Authenticate {
  const { audience, clock = () => new Date(), issuer, scope } = options;

  // JavaScript has no types, and jose skips the check of a claim whose value is undefined.
  for (const [name, value] of Object.entries({ issuer, audience })) {
    if (typeof value !== "string" || value === "")
      throw new TypeError(`Cannot accept JWTs: \`${name}\` is missing`);
  }

  const { algorithms = JWT_ALGORITHMS } = options;
  if (!areAlgorithms(algorithms))
    throw new TypeError("Cannot accept JWTs: `algorithms` must be some of JWT_ALGORITHMS");

  const rules = {
    algorithms: [...algorithms],
    audience,
    issuer,
    requiredClaims: ["exp"],
    clockTolerance: CLOCK_SKEW_SECONDS,
  };

  const keys = providerKeys(remoteKeys(options), options);
  const withPermit = semaphore(Math.max(1, Math.floor(navigator.hardwareConcurrency / 2)));
  /** Tokens that wait for keys, or to be verified, by digest. */
  const inFlight = new Map<string, Promise<Verdict>>();
  let verifying = 0;

  async function verify(
    token: string,
    digest: string,
    header: JWTHeaderParameters,
  ): Promise<Verdict> {
    try {
      const found = await keys.find(header);
      if (found === undefined) return refused("keys unavailable");

      if (verifying >= MAX_WAITING) throw tooMany("to be verified");
      verifying++;
      const verifySignature = () => jwtVerify(token, found.key, { ...rules, currentDate: clock() });
      const { payload } = await withPermit(verifySignature).finally(() => verifying--);

      const verdict = verdictOn(payload, { issuer, scope });
      const expiresAt = ((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) * 1_000;
      remember(found.remembered, digest, { verdict, expiresAt });
      return verdict;
    } catch (error) {
      if (error instanceof PlantStoreError) throw error;
      return refused(refusalOf(error));
    } finally {
      inFlight.delete(digest);
    }
  }

  return (token) => {
    if (token.length > MAX_TOKEN_LENGTH) return refused("too long");

    const digest = sha256(token, "base64");
    const known = keys.remembered().get(digest);
    if (known !== undefined && keys.areUsable() && clock().getTime() < known.expiresAt)
      return known.verdict;

    const waiting = inFlight.get(digest);
    if (waiting !== undefined) return waiting;

    const header = readHeader(token, algorithms);
    if (typeof header === "string") return refused(header);

    const verdict = verify(token, digest, header);
    inFlight.set(digest, verdict);
    return verdict;
  };
}

function areAlgorithms(value: unknown): boolean {
  const known: readonly unknown[] = JWT_ALGORITHMS;
  return Array.isArray(value) && value.length > 0 && value.every((one) => known.includes(one));
}

/**
 * The header of a token, or why the token is refused, as far as that needs neither a key nor the
 * signature.
 */
function readHeader(token: string, algorithms: readonly string[]): JWTHeaderParameters | string {
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

/** RFC 8725, section 3.11; RFC 9068, section 2.1. Many providers send `JWT` or no type. */
const TYPE = /^(?:application\/)?(?:at\+)?jwt$/i;

/**
 * Each array or object costs the parser as much as hundreds of characters, and whoever sends them
 * needs no key.
 */
const TOO_MANY_CONTAINERS = /^(?:[^[{]*[[{]){9}/;

function parseHeader(encoded: string): Record<string, unknown> | undefined {
  try {
    const text = UTF8.decode(base64url.decode(encoded));
    if (TOO_MANY_CONTAINERS.test(text)) return undefined;
    const header = JSON.parse(text) as Record<string, unknown> | null;
    return typeof header === "object" && header !== null && !Array.isArray(header)
      ? header
      : undefined;
  } catch {
    return undefined;
  }
}

const UTF8 = new TextDecoder();

/** How many accepted tokens are remembered, in 2 MB. Refused ones would evict them, and are not. */
const MAX_REMEMBERED = 10_000;

/**
 * How many tokens may wait to be verified, and how many for keys: a slow provider delays no token
 * whose key is cached. Even the slowest signatures, 2 ms each, take 2 seconds together.
 */
const MAX_WAITING = 1_000;

const CLOCK_SKEW_SECONDS = 30;

/** The verdict on the claims of a token whose signature is good. */
function verdictOn(
  payload: JWTPayload,
  { issuer, scope }: Pick<JwtOptions, "issuer" | "scope">,
): Verdict {
  const subject = typeof payload.sub === "string" ? payload.sub : "";
  if (isGranted(payload, scope)) return { ...accepted(subject), issuer };

  const lacks = { what: `the required scope "${scope}"`, scope };
  return { ...accepted(subject, []), issuer, lacks };
}

function tooMany(what: string): PlantStoreError {
  return new PlantStoreError(
    "queue_full",
    `too many JWTs wait ${what}; send the plant again later`,
  );
}

/**
 * RFC 8693, section 4.2: names with spaces between them. Microsoft Entra sends them as `scp`, and
 * Okta as a list.
 */
function isGranted({ scope, scp }: JWTPayload, required: string | undefined): boolean {
  if (required === undefined) return true;
  const names = scope === undefined ? scp : scope;
  if (typeof names === "string") return names.split(" ").includes(required);
  return scope === undefined && Array.isArray(scp) && scp.includes(required);
}

function refusalOf(error: unknown): string {
  // A TypeError or DOMException of Web Cryptography.
  if (!(error instanceof errors.JOSEError)) return "unusable key";
  const isOfClaim = error instanceof errors.JWTClaimValidationFailed && error.reason !== "invalid";
  return REFUSALS[isOfClaim ? error.claim : error.code] ?? "malformed";
}

/** By the claim that is missing or wrong, or else by jose's code. */
const REFUSALS: Readonly<Record<string, string>> = {
  iss: "wrong issuer",
  aud: "wrong audience",
  exp: "no expiry",
  nbf: "not yet valid",
  [errors.JWKSNoMatchingKey.code]: "unknown key",
  [errors.JWKSMultipleMatchingKeys.code]: "ambiguous key",
  [errors.JWKSInvalid.code]: "unusable key",
  [errors.JWSSignatureVerificationFailed.code]: "bad signature",
  [errors.JWTExpired.code]: "expired",
};

// The ages of cached keys, in milliseconds since the provider confirmed them, as RFC 5861 names
// them.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used, and fetched again in the background. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails: whoever blocks the provider keeps a withdrawn key for
 * this long at most.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/**
 * Between the starts of two fetches, in milliseconds: tokens with random key ids must not flood the
 * provider.
 */
const COOLDOWN_MS = 10_000;

/** Accepted tokens by their digest, the oldest first. */
type Remembered = Map<string, RememberedToken>;

/** What is remembered of an accepted token. */
interface RememberedToken {
  readonly verdict: Verdict;
  /** In milliseconds since 1970 UTC. */
  readonly expiresAt: number;
}

function remember(remembered: Remembered, digest: string, token: RememberedToken): void {
  remembered.set(digest, token);

  const [oldest = digest] = remembered.keys();
  if (remembered.size > MAX_REMEMBERED) remembered.delete(oldest);
}

/**
 * The keys of an identity provider. jose fetches, parses and selects them, but never uses old ones,
 * and has no cooldown after a failed fetch: so this function decides when to fetch.
 */
function providerKeys(
  jwks: RemoteJWKSet,
  { monotonic = () => performance.now(), onKeysUnavailable }: JwtOptions,
) {
  /** Of the cached keys. */
  let fingerprint: string | undefined;
  /** What these keys have verified. */
  let remembered: Remembered = new Map();

  /** When the fetch of the cached keys began, by `monotonic`. */
  let confirmedAt = -Infinity;
  /** When the last fetch began, by `monotonic`. */
  let fetchedAt = -Infinity;
  let fetching: Promise<void> | undefined;
  /** How many tokens wait for the fetch. */
  let waiting = 0;
  /** Whether the last fetch failed. */
  let isFailing = false;

  const age = () => monotonic() - confirmedAt;

  /** Whether cached keys may be used without waiting. Begins a fetch if one is due. */
  function areUsable(): boolean {
    if (age() >= MAX_AGE_MS) void revalidate();
    return age() < (isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS);
  }

  /**
   * Finds the key that a token's header names, after a fetch if one is necessary.
   *
   * @returns `undefined` if keys could not be fetched, and the cached ones do not have the key.
   */
  async function find(header: JWTHeaderParameters) {
    if (!areUsable()) await waitForKeys();
    if (age() >= STALE_IF_ERROR_MS) return undefined;

    try {
      return await select(header);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
    }

    // The provider may sign with a new key.
    await waitForKeys();
    return isFailing ? undefined : await select(header);
  }

  async function select(header: JWTHeaderParameters) {
    // Take the map before awaiting the key: a reload meanwhile may withdraw the key, and starts a
    // new map.
    const ofTheseKeys = remembered;
    const key = await jwks(header);
    return { key, remembered: ofTheseKeys };
  }

  async function waitForKeys(): Promise<void> {
    const reloading = revalidate();
    if (reloading !== undefined && ++waiting > MAX_WAITING)
      throw tooMany("for the identity provider's keys");
    await reloading;
  }

  /** Begins a fetch, unless one is in flight or the last one began within the cooldown. */
  function revalidate(): Promise<void> | undefined {
    const now = monotonic();
    if (fetching === undefined && now - fetchedAt >= COOLDOWN_MS) {
      fetchedAt = now;
      fetching = reload();
    }
    return fetching;
  }

  async function reload(): Promise<void> {
    try {
      await jwks.reload();

      const published = fingerprintOf(jwks.jwks()?.keys ?? []);
      if (published !== fingerprint) remembered = new Map();
      fingerprint = published;

      // A key that was withdrawn while the response was on its way may still be in it.
      confirmedAt = fetchedAt;
      isFailing = false;
    } catch (cause) {
      isFailing = true;
      onKeysUnavailable?.(cause);
    } finally {
      fetching = undefined;
      waiting = 0;
    }
  }

  return { areUsable, find, remembered: () => remembered };
}

/** What decides which tokens a key verifies (RFC 7517, section 4; RFC 7518, section 6). */
const KEY_MEMBERS = ["kty", "kid", "alg", "use", "key_ops", "ext", "crv", "x", "y", "n", "e", "d"];

/** The same text for the same keys, whatever their order and their other members. */
function fingerprintOf(keys: readonly JWK[]): string {
  return keys
    .map((key) => JSON.stringify(key, KEY_MEMBERS))
    .toSorted()
    .join();
}

const MAX_JWKS_BYTES = 262_144;

/** The provider's keys, which are fetched only by `reload()`. */
function remoteKeys({
  jwksUrl,
  fetch = globalThis.fetch,
  timeoutMs = 5_000,
}: JwtOptions): RemoteJWKSet {
  requireNumber("timeoutMs", timeoutMs, { max: MAX_TIMER_MS });

  const boundedFetch: FetchImplementation = async (url, init) => {
    const { body, status } = await fetch(url, init);
    // A redirection could leave HTTPS.
    if (status !== 200) {
      await body?.cancel();
      throw new Error(`The JWKS URL answered ${status}`);
    }

    const chunks: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;

    for await (const chunk of body ?? []) {
      size += chunk.length;
      if (size > MAX_JWKS_BYTES)
        throw new Error(`The JWK Set has more than ${MAX_JWKS_BYTES} bytes`);
      chunks.push(chunk);
    }

    return new Response(new Blob(chunks));
  };

  return createRemoteJWKSet(jwksUrl, {
    [customFetch]: boundedFetch,
    timeoutDuration: timeoutMs,
    cacheMaxAge: Infinity,
    cooldownDuration: Infinity,
  });
}
