import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTHeaderParameters } from "jose";

import { MAX_TIMER_MS } from "../../async/timers.ts";
import { PlantStoreError, requireNumber } from "../../errors.ts";
import { setNewest } from "./bounded_map.ts";
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
   * Called with the reason when keys could not be fetched, at most once a cooldown; cached keys may
   * still be used. What it throws is ignored.
   */
  readonly onKeysUnavailable?: ((cause: unknown) => void) | undefined;

  /** Called when keys were fetched. What it throws is ignored. */
  readonly onKeysFetched?: (() => void) | undefined;

  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: (() => number) | undefined;
}

/** The keys that may have signed a token. */
export interface FoundKeys {
  /** To be tried in this order, at most {@linkcode MAX_TRIES}. */
  readonly keys: readonly CryptoKey[];
  /** Whether more keys fit. */
  readonly hasMore: boolean;
  /** The generation of the cached keys that these are from. */
  readonly generation: number;
}

/** How many keys are tried for a token that names none: each try costs as much as a forged token. */
const MAX_TRIES = 4;

// The ages of cached keys, in milliseconds since the provider confirmed them, as RFC 5861 names
// them.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used, and fetched again in the background. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails: an attacker who blocks the provider can extend the
 * life of a withdrawn key by this long at most.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/** Between the starts of two fetches, in milliseconds. */
const COOLDOWN_MS = 10_000;

/**
 * How many fetches for keys that may be new may begin within the cooldown; one more every
 * {@linkcode COOLDOWN_MS}. One client with a made-up key id cannot block a new key, and many cannot
 * flood the provider.
 */
const MAX_EARLY_FETCHES = 5;

/** How many keys are remembered that the provider was asked for and does not have. */
const MAX_MISSING = 1_000;

/**
 * How long the provider must lack a key, in milliseconds, before tokens of it are refused between two
 * fetches. It may sign with a key before each of its replicas and caches publishes it, and a stranger
 * can ask for that key first.
 */
const MISSING_FOR_GOOD_MS = 60_000;

/** How many tokens may wait for keys: a slow provider delays no token whose key is cached. */
const MAX_WAITING = 1_000;

/** The published keys of a provider. */
type Keys = ReturnType<typeof createLocalJWKSet>;

/**
 * The keys of an identity provider. jose parses and selects them. This function decides when to
 * fetch them, and which of them are old enough to wait for others.
 *
 * @throws {TypeError} If `jwksUrl` or `timeoutMs` cannot be used.
 */
export function providerKeys(options: ProviderKeysOptions) {
  const { monotonic = () => performance.now(), onKeysUnavailable, onKeysFetched } = options;
  const fetchJwks = jwksFetcher(options);

  let jwks: JSONWebKeySet = { keys: [] };
  let cached: Keys = createLocalJWKSet(jwks);
  /** Of the cached keys. */
  let fingerprint: string | undefined;
  /** Counts how often the provider published other keys. */
  let generation = 0;

  /** When the fetch of the cached keys began, by `monotonic`. */
  let confirmedAt = -Infinity;
  /** When the last fetch began, by `monotonic`. */
  let fetchedAt = -Infinity;
  let fetching: Promise<void> | undefined;
  /** How many tokens wait for the fetch. */
  let waiting = 0;
  /** Whether the last fetch failed. */
  let isFailing = false;

  /** The early fetches that are left, and since when, by `monotonic`. */
  let early = { left: MAX_EARLY_FETCHES, since: -Infinity };
  /** The keys that the provider was asked for and did not have, and since when, by `monotonic`. */
  const missing = new Map<string, number>();

  const age = () => monotonic() - confirmedAt;

  /** Whether cached keys may be used without waiting. */
  function areUsable(): boolean {
    return age() < (isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS);
  }

  /** Begins a fetch if keys are old, unless one is in flight or the last one began lately. */
  function refreshIfDue(): Promise<void> | undefined {
    if (age() < MAX_AGE_MS) return undefined;
    return fetching ?? startDueFetch();
  }

  /**
   * Finds the keys that fit a token's header, after a fetch if one is necessary.
   *
   * @returns A text if there is none: why the token is refused.
   * @throws {PlantStoreError} `queue_full` if the cached keys do not have one that fits, and newer
   *   ones could not be fetched or may not be fetched yet; or if too many tokens wait for keys.
   */
  async function find(header: JWTHeaderParameters): Promise<FoundKeys | string> {
    const refreshing = refreshIfDue();
    const isRefreshed = !areUsable();
    if (isRefreshed) await waitFor(refreshing);
    if (age() >= STALE_IF_ERROR_MS) throw unavailable();

    const found = await select(header);
    if (found !== undefined) return found;

    // The provider may sign with a new key.
    const key = JSON.stringify([header.alg, header.kid]);
    if (!isRefreshed) {
      const fetchForIt = fetching ?? (missing.has(key) ? startDueFetch() : startEarlyFetch());
      if (fetchForIt === undefined) {
        if (isFailing) throw unavailable();
        if (isPublished(header) || isMissingForGood(key)) return refusalOf(header);
        throw unavailable("unknown key, which may be new");
      }
      await waitFor(fetchForIt);
    }
    if (isFailing) throw unavailable();

    const foundNow = await select(header);
    if (foundNow !== undefined) return foundNow;
    setNewest(missing, key, missing.get(key) ?? monotonic(), MAX_MISSING);
    return refusalOf(header);
  }

  /**
   * Finds the keys that fit a token's header, if newer ones than these are published: the provider
   * may give a new key the id of the old one, or none.
   *
   * @param tried None of them has signed the token.
   * @returns `undefined` if no newer keys exist, or the limit forbids a fetch now.
   */
  async function findNewer(
    header: JWTHeaderParameters,
    tried: FoundKeys,
  ): Promise<FoundKeys | undefined> {
    if (tried.generation === generation) await waitFor(fetching ?? startEarlyFetch());
    return tried.generation === generation ? undefined : select(header);
  }

  /** Begins a fetch, unless the last one began lately. It uses up one that would be regained now. */
  function startDueFetch(): Promise<void> | undefined {
    if (monotonic() - fetchedAt < COOLDOWN_MS) return undefined;
    regainEarly(1);
    return startFetch();
  }

  /** Begins a fetch for a key that may be new, if one is due or may be early. */
  function startEarlyFetch(): Promise<void> | undefined {
    const due = startDueFetch();
    if (due !== undefined || isFailing) return due;

    regainEarly();
    if (early.left === 0) return undefined;
    early.left--;
    return startFetch();
  }

  /** Adds the early fetches that are regained by now, but for those that are used. */
  function regainEarly(used = 0): void {
    const now = monotonic();
    const regained = Math.floor((now - early.since) / COOLDOWN_MS);
    if (regained === 0) return;
    early = { left: Math.min(MAX_EARLY_FETCHES, early.left + regained - used), since: now };
  }

  function isMissingForGood(key: string): boolean {
    return monotonic() - (missing.get(key) ?? Infinity) >= MISSING_FOR_GOOD_MS;
  }

  async function select(header: JWTHeaderParameters): Promise<FoundKeys | undefined> {
    // A reload while a key is imported may withdraw it, and begins another generation.
    const ofThese = generation;
    try {
      const key = await usingKey(() => cached(header));
      return { keys: [key], hasMore: false, generation: ofThese };
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) return undefined;
      if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;

      const keys: CryptoKey[] = [];
      for await (const key of error) {
        if (keys.length === MAX_TRIES) return { keys, hasMore: true, generation: ofThese };
        keys.push(key);
      }
      return { keys, hasMore: false, generation: ofThese };
    }
  }

  /** Why no key fits. */
  function refusalOf(header: JWTHeaderParameters): string {
    return isPublished(header)
      ? "the key is published for another use or algorithm"
      : "unknown key";
  }

  function isPublished({ kid }: JWTHeaderParameters): boolean {
    return kid !== undefined && jwks.keys.some((key) => key.kid === kid);
  }

  async function waitFor(fetch: Promise<void> | undefined): Promise<void> {
    if (fetch !== undefined && ++waiting > MAX_WAITING) {
      throw new PlantStoreError(
        "queue_full",
        "too many JWTs wait for the identity provider's keys; send the plant again later",
      );
    }
    await fetch;
  }

  function startFetch(): Promise<void> {
    fetchedAt = monotonic();
    fetching = reload();
    return fetching;
  }

  async function reload(): Promise<void> {
    let report = onKeysFetched;
    try {
      const published = await fetchJwks();

      const print = fingerprintOf(published);
      if (print !== fingerprint) {
        jwks = published;
        cached = createLocalJWKSet(published);
        fingerprint = print;
        generation++;
      }

      // A key that was withdrawn while the response was on its way may still be in it.
      confirmedAt = fetchedAt;
      isFailing = false;
    } catch (cause) {
      isFailing = true;
      report = () => onKeysUnavailable?.(cause);
    }
    fetching = undefined;
    waiting = 0;

    try {
      report?.();
    } catch {
      // A log that fails is not a failed fetch, and no token depends on it.
    }
  }

  return { areUsable, refreshIfDue, find, findNewer, generation: () => generation };
}

/**
 * Imports or uses a key with jose. For a key that cannot be used, jose throws a `TypeError`, Web
 * Cryptography a `DOMException`, and Bun's a `SyntaxError` too.
 *
 * @throws {JOSEError} Whatever is wrong, `JWKSInvalid` if it is the key.
 */
export async function usingKey<Result>(use: () => Promise<Result>): Promise<Result> {
  try {
    return await use();
  } catch (error) {
    if (error instanceof errors.JOSEError) throw error;
    throw new errors.JWKSInvalid("unusable key", { cause: error });
  }
}

/** Clients try again after a 503, and would throw a token away after a 401. */
function unavailable(reason = "keys unavailable"): PlantStoreError {
  return new PlantStoreError(
    "queue_full",
    "the identity provider's keys are unavailable; send the plant again later",
    { reason },
  );
}

/** They decide which tokens a key verifies (RFC 7517, section 4; RFC 7518, section 6). */
const KEY_MEMBERS = ["kty", "kid", "alg", "use", "key_ops", "ext", "crv", "x", "y", "n", "e", "d"];

/** The same text for the same keys, whatever their order and their other members. */
function fingerprintOf({ keys }: JSONWebKeySet): string {
  return keys
    .map((key) => JSON.stringify(key, KEY_MEMBERS))
    .toSorted()
    .join();
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

/**
 * The keys of a JWK Set that may verify a token. Members of `keys` that are not keys are skipped
 * (RFC 7517, section 5).
 */
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A key as jose takes it. */
function normalized(key: Record<string, unknown>): Record<string, unknown> {
  const { key_ops: operations, alg, ...rest } = key;

  // A pair of keys is published with the operations of both halves. The public half verifies.
  const verifies = Array.isArray(operations) && operations.includes("verify");
  // RFC 9864, section 2.2: two names of one algorithm, which the curve implies.
  const isEd25519 = rest["crv"] === "Ed25519" && (alg === "EdDSA" || alg === "Ed25519");

  return {
    ...rest,
    ...(!verifies && operations !== undefined && { key_ops: operations }),
    ...(!isEd25519 && alg !== undefined && { alg }),
  };
}
