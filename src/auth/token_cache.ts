import type { NewToken, TokenRecord, TokenStore } from "./token_store.ts";
import { accepted, ACCEPTED, refused, SCOPES, type Verdict } from "./authenticate.ts";
import { digestKey, isMistyped, MAX_TOKEN_LENGTH, type Sha256 } from "./tokens.ts";

/** The tokens in memory: validating one costs the same for any number of tokens. */
export interface TokenCache {
  /** Validates a token, and records its use if it is accepted. */
  readonly authenticate: (token: string) => Verdict;
  /** How many tokens are accepted now. */
  readonly size: () => number;
  /** Stores a new token, which is accepted from then on, and resolves to whether its name was free. */
  add(token: NewToken): Promise<boolean>;
  /** Reads the stored tokens again if they changed: other processes create and revoke tokens. */
  refresh(): Promise<void>;
  /** Writes when tokens were last used, some at a time. What cannot be written is kept for the next call. */
  writeUses(): Promise<void>;
}

/** What {@linkcode tokenCache} needs. */
export interface TokenCacheOptions {
  /** Tokens that are accepted without being stored. @default none */
  readonly staticTokens?: readonly string[];
  readonly sha256: Sha256;
  /** Milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: () => number;
}

/**
 * Caches the stored tokens and the static ones.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryDatabase, mintToken, sha256, tokenCache } from "plant-store";
 *
 * const { tokens } = memoryDatabase();
 * const cache = await tokenCache(tokens, { sha256 });
 * const token = mintToken(sha256);
 * const record = { name: "greenhouse", digest: sha256(token), createdAt: new Date(), expiresAt: null };
 * await cache.add({ ...record, scopes: ["write"] });
 *
 * assert(cache.authenticate(token).ok);
 * assert.deepEqual(cache.authenticate("another-token"), { ok: false, reason: "unknown" });
 * ```
 */
export async function tokenCache(store: TokenStore, options: TokenCacheOptions): Promise<TokenCache> {
  const cache = new CachedTokens(store, options);
  await cache.refresh();
  return cache;
}

/** Times are in milliseconds since 1970 UTC. */
interface CachedToken {
  /** A static token has none. */
  readonly name: string | undefined;
  /** While it is neither revoked nor expired. */
  readonly verdict: Verdict;
  readonly isRevoked: boolean;
  readonly expiresAt: number;
  /** The minute of its last recorded use. */
  usedAt: number;
}

const STATIC_TOKEN: CachedToken = {
  name: undefined,
  verdict: ACCEPTED,
  isRevoked: false,
  expiresAt: Infinity,
  usedAt: 0,
};

function cachedToken({ name, scopes, revokedAt, expiresAt, lastUsedAt }: TokenRecord): CachedToken {
  return {
    name,
    verdict: SCOPES.every((scope) => scopes.includes(scope)) ? ACCEPTED : accepted(scopes),
    isRevoked: revokedAt !== null,
    expiresAt: expiresAt?.getTime() ?? Infinity,
    usedAt: lastUsedAt?.getTime() ?? 0,
  };
}

/** How many revoked and expired tokens are kept, in 5 MB: the log calls an older one unknown. */
const MAX_ENDED = 10_000;

/** A use is recorded to the minute: one write a minute for each token. */
const MINUTE_MS = 60_000;

/** How many uses are written in one transaction: no plant waits for more. */
const USES_PER_WRITE = 500;

class CachedTokens implements TokenCache {
  readonly #store: TokenStore;
  readonly #sha256: Sha256;
  readonly #now: () => number;
  readonly #staticKeys: readonly string[];
  /** Of the tokens when they were read. */
  #revision: string | undefined;
  /** By digest. */
  #accepted = new Map<string, CachedToken>();
  /** Tokens that are revoked or expired, by digest, so that the log can name the reason. */
  #ended = new Map<string, CachedToken>();
  /** When the first of the accepted ones expires. */
  #nextExpiry = Infinity;
  /** The minute of the last use, by the token's name. */
  readonly #unwrittenUses = new Map<string, number>();

  constructor(store: TokenStore, { staticTokens = [], sha256, now = Date.now }: TokenCacheOptions) {
    this.#store = store;
    this.#sha256 = sha256;
    this.#now = now;
    this.#staticKeys = staticTokens.map((token) => sha256(token, "base64"));
  }

  readonly authenticate = (token: string): Verdict => {
    if (token.length > MAX_TOKEN_LENGTH) return refused("too long");
    const key = this.#sha256(token, "base64");
    const known = this.#accepted.get(key) ?? this.#ended.get(key);
    if (known === undefined) return refused(isMistyped(token, this.#sha256) ? "mistyped" : "unknown");
    // An accepted token may have expired since it was read.
    const now = this.#now();
    if (known.isRevoked) return refused(`"${known.name}" is revoked`);
    if (known.expiresAt <= now) return refused(`"${known.name}" is expired`);
    this.#recordUse(known, now);
    return known.verdict;
  };

  readonly size = (): number => {
    this.#dropExpired();
    return this.#accepted.size;
  };

  async add(token: NewToken): Promise<boolean> {
    const added = await this.#store.add(token);
    await this.refresh();
    return added;
  }

  async refresh(): Promise<void> {
    this.#dropExpired();
    const revision = await this.#store.revision();
    if (revision === this.#revision) return;
    const stored = await this.#store.list();
    this.#accepted = new Map(this.#staticKeys.map((key) => [key, STATIC_TOKEN]));
    this.#ended = new Map();
    this.#nextExpiry = Infinity;
    for (const record of stored) this.#cache(digestKey(record.digest), cachedToken(record));
    // Last: if a token cannot be read, the next refresh fails as well.
    this.#revision = revision;
  }

  async writeUses(): Promise<void> {
    const uses = Array.from(this.#unwrittenUses, ([name, at]) => ({ name, at: new Date(at) }));
    for (let start = 0; start < uses.length; start += USES_PER_WRITE) {
      const written = uses.slice(start, start + USES_PER_WRITE);
      await this.#store.recordUses(written);
      for (const { name, at } of written) {
        // There may be a later use by now.
        if (this.#unwrittenUses.get(name) === at.getTime()) this.#unwrittenUses.delete(name);
      }
    }
  }

  #recordUse(token: CachedToken, now: number): void {
    const minute = now - (now % MINUTE_MS);
    if (token.name === undefined || token.usedAt >= minute) return;
    token.usedAt = minute;
    this.#unwrittenUses.set(token.name, minute);
  }

  #cache(key: string, token: CachedToken): void {
    if (token.isRevoked) return this.#end(key, token);
    this.#accepted.set(key, token);
    this.#nextExpiry = Math.min(this.#nextExpiry, token.expiresAt);
  }

  #end(key: string, token: CachedToken): void {
    this.#accepted.delete(key);
    this.#ended.set(key, token);
    if (this.#ended.size <= MAX_ENDED) return;
    const [oldest = key] = this.#ended.keys();
    this.#ended.delete(oldest);
  }

  /** Goes through all accepted tokens, but only if one has expired. */
  #dropExpired(): void {
    const now = this.#now();
    if (now < this.#nextExpiry) return;
    this.#nextExpiry = Infinity;
    for (const [key, token] of this.#accepted) {
      if (token.expiresAt <= now) this.#end(key, token);
      else this.#nextExpiry = Math.min(this.#nextExpiry, token.expiresAt);
    }
  }
}
