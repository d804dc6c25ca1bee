import { hash } from "node:crypto";

import { PlantStoreError, requireNoMore, requireNumber } from "../errors.ts";
import { type Accepted, accepted, refused, type Verdict } from "./authenticate.ts";
import { staticVerdicts } from "./static_tokens.ts";
import { digestKey, MAX_TOKEN_LENGTH, unknownToken } from "./token_format.ts";
import type { NewToken, ServerTokens, TokenRecord } from "./token_store.ts";

/** A cache of all tokens: validating one costs the same for any number of tokens. */
export type TokenCache = Awaited<ReturnType<typeof tokenCache>>;

/** Options of {@linkcode tokenCache}. */
export interface TokenCacheOptions {
  /**
   * Tokens that are accepted without being stored, each as `staticTokens()` takes it.
   *
   * @default none
   */
  readonly staticTokens?: readonly string[] | undefined;
  /**
   * How long a stored token with the scope `write` is accepted after the last read of the tokens,
   * in milliseconds. Revocations take effect within this time, even if the database hangs.
   *
   * @default {Infinity}
   */
  readonly maxAgeMs?: number | undefined;
  /** Returns milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: (() => number) | undefined;
  /** A monotonic clock in milliseconds, for the age of the tokens. @default `performance.now` */
  readonly monotonic?: (() => number) | undefined;
}

/**
 * Caches the stored tokens and the static ones.
 *
 * @throws {TypeError} If a static token or `maxAgeMs` cannot be used.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryTokens, mintToken, tokenCache } from "plant-store";
 *
 * const cache = await tokenCache(memoryTokens());
 * const { token, digest } = mintToken();
 * const times = { createdAt: new Date(), expiresAt: null };
 * await cache.add({ name: "greenhouse", digest, ...times, scopes: ["write"] });
 *
 * assert(cache.authenticate(token).ok);
 * assert.equal(cache.authenticate("another-token").ok, false);
 * ```
 */
export async function tokenCache(store: ServerTokens, options: TokenCacheOptions = {}) {
  const {
    staticTokens = [],
    maxAgeMs = Infinity,
    now = Date.now,
    monotonic = () => performance.now(),
    ...rest
  } = options;
  requireNoMore(rest);
  requireNumber("maxAgeMs", maxAgeMs, { max: Infinity });

  const statics = Array.from(
    staticVerdicts(staticTokens),
    ([key, verdict]) => [key, staticToken(verdict)] as const,
  );

  /** The revision of the tokens at the last read. */
  let revision: string | undefined;
  /** When the last successful refresh began, by `monotonic`. All earlier revocations are known. */
  let confirmedAt = -Infinity;
  /** The refresh in flight, and the one that follows it. */
  let refreshing: Promise<void> | undefined;
  let following: Promise<void> | undefined;
  /** The tokens by digest, including ended ones, so that the log can name the reason. */
  let known = new Map<string, CachedToken>();
  /** The minute of the last use, by the token's name. */
  const unwrittenUses = new Map<string, number>();

  const cache = {
    /**
     * Validates a token, and records its use if it is accepted.
     *
     * @throws {PlantStoreError} `queue_full` if the tokens were last read longer than `maxAgeMs`
     *   ago: the token may be revoked by now, or new. Begins a refresh, unless one is in flight.
     */
    authenticate(token: string): Verdict {
      if (token.length > MAX_TOKEN_LENGTH) return unknownToken(token);

      const digest = hash("sha256", token, "base64");
      const found = known.get(digest);
      if (found === undefined) {
        const verdict = unknownToken(token);
        // The token may have been created since the last read.
        if (!verdict.isForeign) requireYounger(maxAgeMs);
        return verdict;
      }
      if (found.isRevoked) return refused(`"${found.name}" is revoked`);

      const time = now();
      if (found.expiresAt <= time) return refused(`"${found.name}" is expired`);
      requireYounger(found.maxAgeMs);

      const minute = time - (time % MINUTE_MS);
      // The recorded minute may be later: another server's clock may be ahead, or ours may have
      // been.
      if (found.usedAt !== minute && found.usedAt !== NEVER_RECORDED) {
        found.usedAt = minute;
        unwrittenUses.set(found.name, minute);
      }
      return found.verdict;
    },

    /** Returns how many tokens are accepted now. Scans all of them. */
    size(): number {
      const time = now();
      return [...known.values()].filter(
        ({ isRevoked, expiresAt }) => !isRevoked && expiresAt > time,
      ).length;
    },

    /**
     * Returns the stored token that expires next, of those used within a day, with its expiry in
     * milliseconds since 1970 UTC. The expiry of an unused token affects no client. Scans all
     * tokens.
     */
    nextExpiry(): { readonly name: string; readonly expiresAt: number } | undefined {
      const time = now();
      let next: CachedToken | undefined;
      for (const token of known.values()) {
        const isInUse = !token.isRevoked && token.expiresAt > time && token.usedAt > time - DAY_MS;
        if (isInUse && token.expiresAt < (next?.expiresAt ?? Infinity)) next = token;
      }
      return next;
    },

    /**
     * Stores a new token, which is accepted from then on, and resolves to whether its name was
     * free.
     */
    async add(token: NewToken): Promise<boolean> {
      const added = await store.add(token);
      await cache.refresh();
      return added;
    },

    /**
     * Reloads the stored tokens if they changed: other processes create and revoke tokens. At most
     * one refresh is in flight. It may miss the latest change, so all calls in the meantime share a
     * second one.
     */
    refresh(): Promise<void> {
      if (refreshing === undefined) {
        refreshing = readIfChanged().finally(() => (refreshing = undefined));
        return refreshing;
      }

      const next = () => {
        following = undefined;
        return cache.refresh();
      };
      following ??= refreshing.then(next, next);
      return following;
    },

    /**
     * Writes the last uses of tokens, in several transactions. Keeps uses that it cannot write for
     * the next call.
     */
    async writeUses(): Promise<void> {
      const uses = Array.from(unwrittenUses, ([name, at]) => ({ name, at: new Date(at) }));
      for (let start = 0; start < uses.length; start += USES_PER_WRITE) {
        const written = uses.slice(start, start + USES_PER_WRITE);
        await store.recordUses(written);

        for (const { name, at } of written) {
          // Keep a later use that was recorded meanwhile.
          if (unwrittenUses.get(name) === at.getTime()) unwrittenUses.delete(name);
        }
      }
    },
  };

  await cache.refresh();
  return cache;

  /** Throws if the tokens are older than this, and begins a refresh unless one is in flight. */
  function requireYounger(ageMs: number): void {
    if (monotonic() - confirmedAt <= ageMs) return;
    if (refreshing === undefined) cache.refresh().catch(() => {});
    throw unconfirmed();
  }

  async function readIfChanged(): Promise<void> {
    const beganAt = monotonic();
    const current = await store.revision();

    if (current !== revision) {
      const stored = await store.list();
      known = new Map(statics);
      // A static token may be stored as well: if it was ever revoked, it stays refused.
      for (const record of stored) {
        const token = cachedToken(record, maxAgeMs);
        token.usedAt = unwrittenUses.get(record.name) ?? token.usedAt;
        known.set(digestKey(record.digest), token);
      }

      // Set last: if reading fails, the next refresh reads all tokens again.
      revision = current;
    }
    confirmedAt = beganAt;
  }
}

/**
 * Returns the error for a token that cannot be checked now. A 401 would make the client discard its
 * token. A server that cannot read tokens can hardly store plants, so a 503 loses none.
 */
function unconfirmed(): PlantStoreError {
  return new PlantStoreError(
    "queue_full",
    "tokens cannot be validated now; send the plant again later",
    { reason: "tokens unavailable" },
  );
}

const DAY_MS = 86_400_000;

/** A use is recorded to the minute: one write a minute for each token. */
const MINUTE_MS = 60_000;

/** How many uses are written in one transaction: no plant waits for more. */
const USES_PER_WRITE = 500;

/** Times are in milliseconds since 1970 UTC. */
interface CachedToken {
  readonly name: string;
  /** The verdict while the token is neither revoked nor expired. */
  readonly verdict: Verdict;
  readonly isRevoked: boolean;
  readonly expiresAt: number;
  /** How long the token is accepted after a refresh, in milliseconds. */
  readonly maxAgeMs: number;
  /** The minute of its last recorded use, or {@linkcode NEVER_RECORDED}. */
  usedAt: number;
}

/** The uses of a static token are not recorded. */
const NEVER_RECORDED = Infinity;

/** Static tokens never go stale: they cannot be revoked while the server runs. */
function staticToken(verdict: Accepted): CachedToken {
  const forever = { expiresAt: Infinity, maxAgeMs: Infinity, usedAt: NEVER_RECORDED };
  return { name: verdict.subject, verdict, isRevoked: false, ...forever };
}

function cachedToken(record: TokenRecord, maxAgeMs: number): CachedToken {
  const { name, scopes, revokedAt, expiresAt, lastUsedAt } = record;
  return {
    name,
    verdict: accepted(name, scopes),
    isRevoked: revokedAt !== null,
    expiresAt: expiresAt?.getTime() ?? Infinity,
    // Metrics are needed most while the database hangs, and reading them changes nothing.
    maxAgeMs: scopes.includes("write") ? maxAgeMs : Infinity,
    usedAt: lastUsedAt?.getTime() ?? 0,
  };
}
