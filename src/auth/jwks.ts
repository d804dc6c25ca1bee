import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTHeaderParameters, type LocalJWKSet } from "jose";

/** Where to fetch keys, and how. */
export interface RemoteJwksOptions {
  /** Where the identity provider publishes its keys: a JWK Set (RFC 7517, section 5). */
  readonly jwksUrl: URL;
  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: () => number;
  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /** Called with the reason when keys could not be fetched, at most once a cooldown; cached keys may still be used. */
  readonly onKeysUnavailable?: (cause: unknown) => void;
}

// The ages of cached keys, in milliseconds since they were confirmed, in the words of RFC 5861.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used and fetched again in the background: no request waits for a fetch. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails; older ones never. An attacker who blocks the way to the provider cannot
 * keep a withdrawn key in use for longer than this.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/** Between the starts of two fetches, in milliseconds: tokens with random key ids must not flood the provider. */
const COOLDOWN_MS = 10_000;

/** The provider's keys could not be fetched, and the cached ones do not have the key. */
export class KeysUnavailable extends Error {
  override readonly name = "KeysUnavailable";
}

/** The keys that an identity provider publishes. */
export interface RemoteJwks {
  /**
   * Finds the key that a token's header names, after a fetch where one is due.
   *
   * @throws {KeysUnavailable} If keys are needed and cannot be fetched, and otherwise what jose's `createLocalJWKSet`
   * throws.
   */
  find(header: JWTHeaderParameters): Promise<FoundKey>;
  /** The keys as they are cached, where they may be used without waiting; begins a fetch where one is due. */
  usable(): LocalJWKSet | undefined;
}

/** A key, and the set that it was found in: another set says nothing of it. */
export interface FoundKey {
  readonly key: CryptoKey;
  readonly keys: LocalJWKSet;
}

/**
 * Fetches the provider's keys when they are needed, and caches them. jose's own `createRemoteJWKSet` refuses cached keys
 * when they are too old and the provider is away, and has no cooldown after a fetch that failed.
 */
export function remoteJwks(options: RemoteJwksOptions): RemoteJwks {
  const cache: State = {
    url: options.jwksUrl,
    monotonic: options.monotonic ?? (() => performance.now()),
    timeoutMs: options.timeoutMs ?? 5_000,
    onKeysUnavailable: options.onKeysUnavailable ?? (() => {}),
    text: undefined,
    keys: undefined,
    confirmedAt: Number.NEGATIVE_INFINITY,
    fetchedAt: Number.NEGATIVE_INFINITY,
    fetching: undefined,
    isFailing: false,
  };
  return { find: (header) => find(cache, header), usable: () => usableKeys(cache) };
}

interface State {
  readonly url: URL;
  readonly monotonic: () => number;
  readonly timeoutMs: number;
  readonly onKeysUnavailable: (cause: unknown) => void;
  /** The JWK Set as it was sent: as long as it is the same, `keys` is the same object. */
  text: string | undefined;
  keys: LocalJWKSet | undefined;
  /** When the provider was asked for the cached keys, by `monotonic`. */
  confirmedAt: number;
  /** When the last fetch began, by `monotonic`. */
  fetchedAt: number;
  fetching: Promise<void> | undefined;
  /** Whether the last fetch failed. */
  isFailing: boolean;
}

async function find(cache: State, header: JWTHeaderParameters): Promise<FoundKey> {
  const keys = await awaitKeys(cache);
  try {
    return { key: await keys(header), keys };
  } catch (error) {
    if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
  }
  await revalidate(cache);
  if (cache.isFailing) throw new KeysUnavailable();
  const newKeys = await awaitKeys(cache);
  return { key: await newKeys(header), keys: newKeys };
}

async function awaitKeys(cache: State): Promise<LocalJWKSet> {
  const usable = usableKeys(cache);
  if (usable !== undefined) return usable;
  await revalidate(cache);
  if (cache.keys === undefined || ageOf(cache) >= STALE_IF_ERROR_MS) throw new KeysUnavailable();
  return cache.keys;
}

function usableKeys(cache: State): LocalJWKSet | undefined {
  const age = ageOf(cache);
  if (age >= MAX_AGE_MS) void revalidate(cache);
  return age < (cache.isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS) ? cache.keys : undefined;
}

function ageOf({ monotonic, confirmedAt }: State): number {
  return monotonic() - confirmedAt;
}

/** Begins a fetch, unless one is under way or the last one began within the cooldown. */
function revalidate(cache: State): Promise<void> | undefined {
  const now = cache.monotonic();
  if (cache.fetching === undefined && now - cache.fetchedAt >= COOLDOWN_MS) {
    cache.fetchedAt = now;
    cache.fetching = update(cache);
  }
  return cache.fetching;
}

async function update(cache: State): Promise<void> {
  try {
    const text = await fetchText(cache.url, cache.timeoutMs);
    if (text !== cache.text) cache.keys = createLocalJWKSet(JSON.parse(text) as JSONWebKeySet);
    cache.text = text;
    // What was withdrawn while the response was on its way may still be in it.
    cache.confirmedAt = cache.fetchedAt;
    cache.isFailing = false;
  } catch (cause) {
    cache.isFailing = true;
    cache.onKeysUnavailable(cause);
  } finally {
    cache.fetching = undefined;
  }
}

/** @throws When there is no good response in time. A redirection is none: it could leave HTTPS. */
async function fetchText(url: URL, timeoutMs: number): Promise<string> {
  const response = await fetch(url, {
    headers: { accept: "application/jwk-set+json, application/json" },
    redirect: "manual",
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (response.status === 200) return boundedText(response);
  await response.body?.cancel();
  throw new Error(`The JWKS URL answered ${response.status}`);
}

/** In bytes; the largest JWK Sets in use, with certificate chains, have a tenth of it. */
const MAX_JWKS_BYTES = 262_144;

async function boundedText({ body }: Response): Promise<string> {
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_JWKS_BYTES) throw new Error(`The JWK Set has more than ${MAX_JWKS_BYTES} bytes`);
    text += utf8.decode(chunk, { stream: true });
  }
  return text + utf8.decode();
}
