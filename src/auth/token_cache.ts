import type { NewToken, TokenRecord, TokenStore } from "./token_store.ts";
import { accepted, ACCEPTED, refused, SCOPES, type Verdict } from "./authenticate.ts";
import { digestKey, isMistyped, MAX_TOKEN_LENGTH, type Sha256 } from "./tokens.ts";

/** The tokens that are accepted now, in memory: validating one reads nothing, and costs the same however many there are. */
export interface TokenCache {
  /** Validates a token, and records its use if it is accepted. */
  readonly authenticate: (token: string) => Verdict;
  /** How many tokens would be accepted now. */
  readonly size: () => number;
  /** Stores a new token, which is accepted from then on, and resolves to whether its name was free. */
  add(token: NewToken): Promise<boolean>;
  /** Reads the stored tokens again if they changed: other processes create and revoke. */
  refresh(): Promise<void>;
  /** Writes when tokens were last used, a bounded number at a time. What cannot be written is kept for the next time. */
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
 * Caches the stored tokens, and the static ones beside them.
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
  const { sha256, now = Date.now } = options;
  const cache = emptyCache(store, options);
  await refresh(cache, now());
  return {
    authenticate: (token) => {
      if (token.length > MAX_TOKEN_LENGTH) return refused("too long");
      const found = find(cache, sha256(token, "base64"));
      if (found === undefined) return refused(isMistyped(token, sha256) ? "mistyped" : "unknown");
      return validate(cache, found, now());
    },
    size: () => {
      dropExpired(cache, now());
      return cache.accepted.size;
    },
    add: async (token) => {
      const added = await store.add(token);
      await refresh(cache, now());
      return added;
    },
    refresh: () => refresh(cache, now()),
    writeUses: () => writeUses(cache),
  };
}

interface State {
  readonly store: TokenStore;
  readonly staticTokens: readonly CachedToken[];
  /** The store's when it was read. */
  revision: string | undefined;
  /** By digest. */
  accepted: Map<string, CachedToken>;
  /** Tokens that are revoked or expired, by digest: only so that the log can name the reason. */
  ended: Map<string, CachedToken>;
  /** When the first of the accepted ones expires, in milliseconds since 1970 UTC. */
  nextExpiry: number;
  /** The minute of the last use, by the token's name. */
  readonly unwrittenUses: Map<string, number>;
}

function emptyCache(store: TokenStore, { staticTokens = [], sha256 }: TokenCacheOptions): State {
  return {
    store,
    staticTokens: staticTokens.map((token) => staticToken(sha256(token))),
    revision: undefined,
    accepted: new Map(),
    ended: new Map(),
    nextExpiry: Infinity,
    unwrittenUses: new Map(),
  };
}

function find({ accepted, ended }: State, key: string): CachedToken | undefined {
  return accepted.get(key) ?? ended.get(key);
}

/** Which map holds the token does not decide: it may have expired since. */
function validate(cache: State, token: CachedToken, now: number): Verdict {
  if (token.record === undefined) return token.verdict;
  const reason = refusalOf(token.record, now);
  if (reason !== undefined) return refused(reason);
  recordUse(cache, token, token.record.name, now);
  return token.verdict;
}

/** Reads all stored tokens, where something changed. */
async function refresh(cache: State, now: number): Promise<void> {
  dropExpired(cache, now);
  const revision = await cache.store.revision();
  if (revision === cache.revision) return;
  const stored = await cache.store.list();
  cache.accepted = new Map(cache.staticTokens.map((token) => [digestKey(token.digest), token]));
  cache.ended = new Map();
  cache.nextExpiry = Infinity;
  for (const record of stored) cacheToken(cache, record);
  // Last of all: where a token cannot be read, the next refresh fails, too, and says so.
  cache.revision = revision;
}

function cacheToken(cache: State, record: TokenRecord): void {
  const key = digestKey(record.digest);
  const token = cachedToken(record);
  if (record.revokedAt !== null) return end(cache, key, token);
  cache.accepted.set(key, token);
  cache.nextExpiry = Math.min(cache.nextExpiry, expiryOf(token));
}

/** How many tokens are kept in memory after their end, 5 MB of them: the log calls an older one unknown. */
const MAX_ENDED = 10_000;

function end(cache: State, key: string, token: CachedToken): void {
  cache.accepted.delete(key);
  cache.ended.set(key, token);
  if (cache.ended.size <= MAX_ENDED) return;
  const [oldest = key] = cache.ended.keys();
  cache.ended.delete(oldest);
}

/** Looks through all accepted tokens, but only when one of them has expired. */
function dropExpired(cache: State, now: number): void {
  if (now < cache.nextExpiry) return;
  cache.nextExpiry = Infinity;
  for (const [key, token] of cache.accepted) {
    const expiry = expiryOf(token);
    if (expiry <= now) end(cache, key, token);
    else cache.nextExpiry = Math.min(cache.nextExpiry, expiry);
  }
}

/** A use is recorded to the minute: that is one write a minute and token, however many requests there are. */
const MINUTE_MS = 60_000;

function recordUse(cache: State, token: CachedToken, name: string, now: number): void {
  const minute = now - (now % MINUTE_MS);
  if (token.usedAt >= minute) return;
  token.usedAt = minute;
  cache.unwrittenUses.set(name, minute);
}

/** How many uses are written in one transaction: no plant waits for more of them. */
const USES_PER_WRITE = 500;

async function writeUses(cache: State): Promise<void> {
  const uses = [...cache.unwrittenUses];
  for (let start = 0; start < uses.length; start += USES_PER_WRITE) {
    await writePiece(cache, uses.slice(start, start + USES_PER_WRITE));
  }
}

async function writePiece({ store, unwrittenUses }: State, uses: readonly [string, number][]): Promise<void> {
  await store.recordUses(uses.map(([name, at]) => ({ name, at: new Date(at) })));
  // A later use may have come meanwhile.
  for (const [name, at] of uses) if (unwrittenUses.get(name) === at) unwrittenUses.delete(name);
}

/** A token, and what is known of it. */
interface CachedToken {
  readonly digest: Uint8Array;
  /** The verdict while it is neither revoked nor expired. */
  readonly verdict: Verdict;
  /** A static token has none. */
  readonly record: TokenRecord | undefined;
  /** The minute of its last use that is recorded, in milliseconds since 1970 UTC. */
  usedAt: number;
}

/** A token of the settings, which has no name, no scopes and no end. */
function staticToken(digest: Uint8Array): CachedToken {
  return { digest, verdict: ACCEPTED, record: undefined, usedAt: 0 };
}

/** A token of the store. Its verdict is made here, not at a request. */
function cachedToken(record: TokenRecord): CachedToken {
  const { digest, lastUsedAt, scopes } = record;
  const verdict = SCOPES.every((scope) => scopes.includes(scope)) ? ACCEPTED : accepted(scopes);
  return { digest, verdict, record, usedAt: lastUsedAt?.getTime() ?? 0 };
}

/** Why a stored token is not accepted at a time, if it is not. */
function refusalOf({ name, revokedAt, expiresAt }: TokenRecord, now: number): string | undefined {
  if (revokedAt !== null) return `"${name}" is revoked`;
  if (expiresAt !== null && expiresAt.getTime() <= now) return `"${name}" is expired`;
  return undefined;
}

/** When it expires, in milliseconds since 1970 UTC. */
function expiryOf({ record }: CachedToken): number {
  return record?.expiresAt?.getTime() ?? Infinity;
}
