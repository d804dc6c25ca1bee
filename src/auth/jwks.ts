import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey, type LocalJWKSet } from "jose";

/** Whose keys, and how to get them. */
export interface RemoteJwksOptions {
  /** Where the identity provider publishes its keys: a JWK Set (RFC 7517, section 5). */
  readonly jwksUrl: URL;
  /** Milliseconds that never go back, by which cached keys age. @default `performance.now` */
  readonly monotonic?: () => number;
  /** How long one fetch of the keys may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /** Told why the keys could not be fetched, at most once a cooldown; keys seen before may still count. */
  readonly onKeysUnavailable?: (cause: unknown) => void;
}

/** Between the starts of two fetches, in milliseconds: tokens with random key ids cannot make us hammer the provider. */
const COOLDOWN_MS = 10_000;
/** Keys confirmed longer ago are fetched again in the background, in milliseconds: under load nobody waits for it. */
const REFRESH = 5 * 60_000;
/** Keys confirmed longer ago are fetched again first, in milliseconds: a withdrawn key ends, also after a quiet time. */
const FRESH = 10 * 60_000;
/**
 * Keys confirmed longer ago do not count, in milliseconds: who can keep us from the provider cannot keep a withdrawn
 * key good for ever, and a provider that is away this long has issued nothing that is still worth accepting.
 */
const GOOD = 24 * 3_600_000;

/** Nobody knows the provider's keys now. */
export class KeysUnavailable extends Error {
  override readonly name = "KeysUnavailable";
}

/**
 * The provider's keys as it was last seen with them. jose's own `createRemoteJWKSet` refuses known keys when they are
 * too old and the provider is away, and has no cooldown after a fetch that failed.
 */
export function remoteJwks(options: RemoteJwksOptions): JWTVerifyGetKey {
  const { jwksUrl, monotonic = () => performance.now(), timeoutMs = 5_000, onKeysUnavailable } = options;
  let keys: LocalJWKSet | undefined;
  let confirmedAt = Number.NEGATIVE_INFINITY;
  let askedAt = Number.NEGATIVE_INFINITY;
  let asking: Promise<void> | undefined;
  let failing = false;
  const age = () => monotonic() - confirmedAt;

  /** One fetch at a time, and none while cooling down. */
  function ask(): Promise<void> | undefined {
    if (asking === undefined && monotonic() - askedAt >= COOLDOWN_MS) {
      askedAt = monotonic();
      asking = fetchKeys(jwksUrl, timeoutMs).then(keep, fail);
    }
    return asking;
  }

  function keep(fetched: LocalJWKSet): void {
    keys = fetched;
    // What was withdrawn while the response was under way may still be in it.
    confirmedAt = askedAt;
    failing = false;
    asking = undefined;
  }

  function fail(cause: unknown): void {
    failing = true;
    asking = undefined;
    onKeysUnavailable?.(cause);
  }

  /** Whoever has keys that count waits for fresher ones only where nothing says that the provider is away. */
  async function confirmed(): Promise<LocalJWKSet> {
    if (age() >= REFRESH) {
      const asked = ask();
      if (age() >= (failing ? GOOD : FRESH)) await asked;
    }
    if (keys === undefined || age() >= GOOD) throw new KeysUnavailable();
    return keys;
  }

  return async (header, token) => {
    const known = await confirmed();
    try {
      return await known(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
    }
    await ask();
    if (failing) throw new KeysUnavailable();
    return (await confirmed())(header, token);
  };
}

/** @throws When there is no response in time, or none with a JWK Set. A redirection is none: it could leave HTTPS. */
async function fetchKeys(url: URL, timeoutMs: number): Promise<LocalJWKSet> {
  const response = await fetch(url, {
    headers: { accept: "application/jwk-set+json, application/json" },
    redirect: "manual",
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (response.status === 200) return createLocalJWKSet(JSON.parse(await boundedText(response)) as JSONWebKeySet);
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
