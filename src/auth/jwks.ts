import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey, type LocalJWKSet } from "jose";

/** Whose keys, and how to get them. */
export interface RemoteJwksOptions {
  /** Where the identity provider publishes its keys: a JWK Set (RFC 7517, section 5). */
  readonly jwksUrl: URL;
  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: () => number;
  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /** Told why the keys could not be fetched, at most once a cooldown; cached keys may still be used. */
  readonly onKeysUnavailable?: (cause: unknown) => void;
}

// The ages of cached keys, in milliseconds since they were confirmed, in the words of RFC 5861.

/** Younger keys are used as they are. */
const MAX_AGE_MS = 5 * 60_000;
/** Younger keys are used and fetched again in the background: under load nobody waits for a fetch. */
const STALE_WHILE_REVALIDATE_MS = 10 * 60_000;
/**
 * Younger keys are used while fetching fails; older ones never. Whoever can keep us from the provider cannot keep a
 * withdrawn key in use for ever, and what a provider that is away this long has issued is worth nothing any more.
 */
const STALE_IF_ERROR_MS = 24 * 3_600_000;

/** Between the starts of two fetches, in milliseconds: tokens with random key ids cannot make us flood the provider. */
const COOLDOWN_MS = 10_000;

/** The provider's keys are not to be had now. */
export class KeysUnavailable extends Error {
  override readonly name = "KeysUnavailable";
}

/**
 * The keys that an identity provider publishes, fetched when needed, and cached. jose's own `createRemoteJWKSet`
 * refuses cached keys when they are too old and the provider is away, and has no cooldown after a fetch that failed.
 *
 * @returns Finds the key that a token names. Throws {@linkcode KeysUnavailable}, or what jose's `createLocalJWKSet` does.
 */
export function remoteJwks(options: RemoteJwksOptions): JWTVerifyGetKey {
  const cache: State = {
    url: options.jwksUrl,
    monotonic: options.monotonic ?? (() => performance.now()),
    timeoutMs: options.timeoutMs ?? 5_000,
    onKeysUnavailable: options.onKeysUnavailable ?? (() => {}),
    keys: undefined,
    confirmedAt: Number.NEGATIVE_INFINITY,
    fetchedAt: Number.NEGATIVE_INFINITY,
    fetching: undefined,
    isFailing: false,
  };
  return async (header, token) => {
    const cached = await usableKeys(cache);
    try {
      return await cached(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
    }
    await revalidate(cache);
    if (cache.isFailing) throw new KeysUnavailable();
    return (await usableKeys(cache))(header, token);
  };
}

interface State {
  readonly url: URL;
  readonly monotonic: () => number;
  readonly timeoutMs: number;
  readonly onKeysUnavailable: (cause: unknown) => void;
  keys: LocalJWKSet | undefined;
  /** When the provider was asked for the cached keys, by `monotonic`. */
  confirmedAt: number;
  /** When the last fetch began, by `monotonic`. */
  fetchedAt: number;
  fetching: Promise<void> | undefined;
  /** Whether the last fetch failed. */
  isFailing: boolean;
}

function ageOf({ monotonic, confirmedAt }: State): number {
  return monotonic() - confirmedAt;
}

/** The cached keys, after a fetch where they are too old to be used without one. */
async function usableKeys(cache: State): Promise<LocalJWKSet> {
  if (ageOf(cache) >= MAX_AGE_MS) {
    const fetching = revalidate(cache);
    if (ageOf(cache) >= (cache.isFailing ? STALE_IF_ERROR_MS : STALE_WHILE_REVALIDATE_MS)) await fetching;
  }
  if (cache.keys === undefined || ageOf(cache) >= STALE_IF_ERROR_MS) throw new KeysUnavailable();
  return cache.keys;
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
    cache.keys = createLocalJWKSet(await fetchJwks(cache.url, cache.timeoutMs));
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

/** @throws When there is no response in time, or none with a JWK Set. A redirection is none: it could leave HTTPS. */
async function fetchJwks(url: URL, timeoutMs: number): Promise<JSONWebKeySet> {
  const response = await fetch(url, {
    headers: { accept: "application/jwk-set+json, application/json" },
    redirect: "manual",
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (response.status === 200) return JSON.parse(await boundedText(response)) as JSONWebKeySet;
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
