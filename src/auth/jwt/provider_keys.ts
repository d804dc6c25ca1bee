import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTHeaderParameters } from "jose";

import { MAX_TIMER_MS } from "../../async/timers.ts";
import { attempt, PlantStoreError, requireNumber } from "../../errors.ts";
import { publicUrl } from "./public_url.ts";

/** Options of {@linkcode providerKeys}. */
export interface ProviderKeysOptions {
  /** The URL of the provider's keys: a JWK Set (RFC 7517, section 5). */
  readonly jwksUrl: URL;

  /** Fetches the keys. @default the platform's `fetch` */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;

  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number | undefined;

  /**
   * Called with the reason when a fetch of keys fails; cached keys may still be used. Errors that
   * it throws are printed with `console.error`.
   */
  readonly onKeysUnavailable?: ((cause: unknown) => void) | undefined;

  /** Called after keys were fetched. Errors that it throws are printed with `console.error`. */
  readonly onKeysFetched?: (() => void) | undefined;

  /** A monotonic clock in milliseconds, for the age of cached keys. @default `performance.now` */
  readonly monotonic?: (() => number) | undefined;
}

/** The keys that may have signed a token. */
export interface FoundKeys {
  /** The keys to try, in this order; at most {@linkcode MAX_TRIES}. */
  readonly keys: readonly CryptoKey[];
  /** Whether more keys fit. */
  readonly hasMore: boolean;
  /** The generation of the cached keys. */
  readonly generation: number;
}

/** How many keys are tried for a token that names none: each try costs as much as a forged token. */
const MAX_TRIES = 4;

// The ages of cached keys, in milliseconds since the provider confirmed them, as RFC 5861 names
// them.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used, and refreshed in the background. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails: an attacker who blocks the provider can extend the
 * life of a withdrawn key by this long at most.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/**
 * The minimum time between the starts of two fetches, in milliseconds. Made-up key ids cannot cause
 * more of them.
 */
const COOLDOWN_MS = 10_000;

/** How many tokens may wait for keys: a slow provider delays no token whose key is cached. */
const MAX_WAITING = 1_000;

/**
 * Fetches and caches the keys of an identity provider. jose parses and selects them.
 *
 * A token that cannot be verified triggers a fetch, at most once a cooldown. Until then, a token
 * with an unknown key gets no verdict: only a fetch that began after its arrival shows that the key
 * is not published.
 *
 * @throws {TypeError} If `jwksUrl` or `timeoutMs` cannot be used.
 */
export function providerKeys(options: ProviderKeysOptions) {
  const { monotonic = () => performance.now(), onKeysUnavailable, onKeysFetched } = options;
  const fetchJwks = jwksFetcher(options);

  let jwks: JSONWebKeySet = { keys: [] };
  let cached = createLocalJWKSet(jwks);
  /** Counts the changes of the cached keys. */
  let generation = 0;

  /** Counts the fetches. */
  let begun = 0;
  /** The last fetch that succeeded, and when it began, by `monotonic`. */
  let confirmed = 0;
  let confirmedAt = -Infinity;
  /** When the last fetch began, by `monotonic`. */
  let fetchedAt = -Infinity;
  let fetching: Promise<void> | undefined;
  /** How many tokens wait for the fetch. */
  let waiting = 0;
  /** Whether the last fetch failed. */
  let isFailing = false;

  const age = () => monotonic() - confirmedAt;

  /** Whether cached keys may be used without waiting. */
  function areUsable(): boolean {
    return age() < (isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS);
  }

  /** Fetches the keys if they are old, subject to the cooldown of {@linkcode fetchAgain}. */
  function refreshIfDue(): Promise<void> | undefined {
    return age() < MAX_AGE_MS ? undefined : fetchAgain();
  }

  /** Returns the fetch in flight, or starts one, unless the last one began within the cooldown. */
  function fetchAgain(): Promise<void> | undefined {
    if (fetching !== undefined || monotonic() - fetchedAt < COOLDOWN_MS) return fetching;
    begun++;
    fetchedAt = monotonic();
    fetching = reload();
    return fetching;
  }

  /**
   * Finds the keys that fit a token's header, after a fetch if one is necessary.
   *
   * @returns The keys; if none fits, why the token is refused.
   * @throws {PlantStoreError} `queue_full` if the keys are unavailable, if too many tokens wait for
   *   keys, or if the token's key may have been published since the last fetch.
   */
  async function find(header: JWTHeaderParameters): Promise<FoundKeys | string> {
    const begunBefore = begun;
    const refreshing = refreshIfDue();
    if (!areUsable()) await waitFor(refreshing);
    if (age() >= STALE_IF_ERROR_MS) throw unavailable("keys unavailable");

    let found = await select(header);
    if (found === undefined) {
      await waitFor(fetchAgain());
      found = await select(header);
    }
    if (found !== undefined) return found;

    // Refuse at once, as for a bad signature: the key is known.
    if (isPublished(header)) return "the key is published for another use or algorithm";
    if (confirmed > begunBefore) return "unknown key";
    throw unavailable(isFailing ? "keys unavailable" : "unknown key, which may be new");
  }

  async function select(header: JWTHeaderParameters): Promise<FoundKeys | undefined> {
    // Made-up key ids are cheap to send: jose would make an error for each.
    if (header.kid !== undefined && !isPublished(header)) return undefined;

    // Read before importing the key: a reload meanwhile may withdraw the key, and begin another
    // generation.
    const ofThese = generation;
    try {
      const key = await usingKey(() => cached(header));
      return { keys: [key], hasMore: false, generation: ofThese };
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) return undefined;
      if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;

      const keys: CryptoKey[] = [];
      for await (const key of error) {
        if (isShort(key)) continue;
        if (keys.length === MAX_TRIES) return { keys, hasMore: true, generation: ofThese };
        keys.push(key);
      }
      return { keys, hasMore: false, generation: ofThese };
    }
  }

  function isPublished({ kid }: JWTHeaderParameters): boolean {
    return kid !== undefined && jwks.keys.some((key) => key.kid === kid);
  }

  async function waitFor(fetch: Promise<void> | undefined): Promise<void> {
    if (fetch !== undefined && ++waiting > MAX_WAITING)
      throw tooManyWait("for the identity provider's keys");
    await fetch;
  }

  async function reload(): Promise<void> {
    let report = () => attempt("onKeysFetched", () => onKeysFetched?.());
    try {
      const published = await fetchJwks();

      // A new generation makes every remembered token be verified again.
      if (JSON.stringify(published) !== JSON.stringify(jwks)) {
        jwks = published;
        cached = createLocalJWKSet(published);
        generation++;
      }

      // The response may still have a key that was withdrawn while it was in transit.
      confirmedAt = fetchedAt;
      confirmed = begun;
      isFailing = false;
    } catch (cause) {
      isFailing = true;
      report = () => attempt("onKeysUnavailable", () => onKeysUnavailable?.(cause));
    }
    fetching = undefined;
    waiting = 0;

    report();
  }

  return { areUsable, refreshIfDue, fetchAgain, find, generation: () => generation };
}

/**
 * Imports or uses a key with jose. For a key that cannot be used, jose throws a `TypeError`, Web
 * Cryptography a `DOMException`, and Bun's a `SyntaxError` too.
 *
 * @throws {JOSEError} After any failure; `JWKSInvalid` if the key cannot be used.
 */
export async function usingKey<Result>(use: () => Promise<Result>): Promise<Result> {
  try {
    return await use();
  } catch (error) {
    if (error instanceof errors.JOSEError) throw error;
    throw new errors.JWKSInvalid("unusable key", { cause: error });
  }
}

/**
 * Whether a key is too short for jose (RFC 7518, section 3.3), which imports it but refuses to
 * verify with it.
 */
function isShort({ algorithm }: CryptoKey): boolean {
  return "modulusLength" in algorithm && Number(algorithm.modulusLength) < 2_048;
}

/**
 * Returns the error for unavailable keys: clients retry after a 503, but discard a token after a
 * 401.
 */
function unavailable(reason: string): PlantStoreError {
  return new PlantStoreError(
    "queue_full",
    "the token's key is unavailable; send the plant again later",
    { reason },
  );
}

/** Returns the error for a token that exceeds the limit of waiting tokens. */
export function tooManyWait(what: string): PlantStoreError {
  const reason = `too many JWTs wait ${what}`;
  return new PlantStoreError("queue_full", `${reason}; send the plant again later`, { reason });
}

const MAX_JWKS_BYTES = 262_144;

/** Fetches the keys of a provider, within a time and a size. */
function jwksFetcher({
  jwksUrl,
  fetch = globalThis.fetch,
  timeoutMs = 5_000,
}: ProviderKeysOptions): () => Promise<JSONWebKeySet> {
  requireNumber("timeoutMs", timeoutMs, { max: MAX_TIMER_MS });
  if (typeof jwksUrl?.href !== "string")
    throw new TypeError("Cannot accept JWTs: `jwksUrl` must be a URL");

  return async () => {
    const signal = AbortSignal.timeout(timeoutMs);
    // A redirection could leave HTTPS.
    const { body, status } = await fetch(jwksUrl.href, {
      headers: { accept: "application/json, application/jwk-set+json" },
      redirect: "manual",
      signal,
    });
    if (status !== 200) {
      await body?.cancel();
      throw new Error(`The JWKS URL returned ${status}`);
    }

    const chunks: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;

    for await (const chunk of body ?? []) {
      size += chunk.length;
      if (size > MAX_JWKS_BYTES)
        throw new Error(`The JWK Set has more than ${MAX_JWKS_BYTES} bytes`);
      chunks.push(chunk);
    }

    return parseJwks(await new Blob(chunks).arrayBuffer());
  };
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Parses a JWK Set. Skips members of `keys` that are not keys (RFC 7517, section 5). */
function parseJwks(bytes: ArrayBuffer): JSONWebKeySet {
  let set: unknown;
  try {
    set = JSON.parse(UTF8.decode(bytes));
  } catch {
    throw new Error("The JWKS URL did not return JSON");
  }

  if (!isObject(set) || !Array.isArray(set["keys"])) throw new Error(whyNoJwks(set));
  const keys = set["keys"].filter(isObject);
  if (keys.length === 0 && set["keys"].length > 0)
    throw new Error("The JWK Set has no key that is an object");
  return { keys: keys.map(normalized) as unknown as JSONWebKeySet["keys"] };
}

function whyNoJwks(answer: unknown): string {
  if (!isObject(answer) || typeof answer["jwks_uri"] !== "string")
    return "The JWKS URL did not return a JWK Set";

  // Operators copy this from the log: only a URL.
  const url = publicUrl(answer["jwks_uri"]);
  const jwksUri = url === undefined ? "" : `, ${url}`;
  return `The JWKS URL returned the discovery document: use its jwks_uri${jwksUri.slice(0, 300)}`;
}

/** Whether a value of JSON is an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a key in the form that jose accepts. */
function normalized(key: Record<string, unknown>): Record<string, unknown> {
  const { key_ops: operations, alg, ...rest } = key;

  // A key pair may be published with the operations of both keys. The public key verifies.
  const verifies = Array.isArray(operations) && operations.includes("verify");
  // RFC 9864, section 2.2: two names of one algorithm, which the curve implies.
  const isEd25519 = rest["crv"] === "Ed25519" && (alg === "EdDSA" || alg === "Ed25519");

  return {
    ...rest,
    ...(!verifies && operations !== undefined && { key_ops: operations }),
    ...(!isEd25519 && alg !== undefined && { alg }),
  };
}
