import { hash } from "node:crypto";

import { PlantStoreError, requireNoMore, requireNumber } from "../errors.ts";
import { type Accepted, accepted, refused, type Verdict } from "./authenticate.ts";
import { staticVerdicts } from "./static_tokens.ts";
import { digestKey, MAX_TOKEN_LENGTH, requireStaticTokens, unknownToken } from "./token_format.ts";
import type { NewToken, ServerTokens, TokenRecord } from "./token_store.ts";

/** The tokens in memory: validating one costs the same for any number of tokens. */
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
   * How long a stored token with the scope `write` is accepted after the tokens were last read, in
   * milliseconds: a revocation takes effect within this time, even if the database hangs.
   *
   * @default {Infinity}
   */
  readonly maxAgeMs?: number | undefined;
  /** Milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: (() => number) | undefined;
  /** Milliseconds that never go back, by which the tokens age. @default `performance.now` */
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
  requireStaticTokens(staticTokens);
  requireNumber("maxAgeMs", maxAgeMs, { max: Infinity });

  /** A static token may be stored as well: if it was ever revoked, it stays refused. */
  const digests = staticTokens.map((token) => hash("sha256", token, "buffer"));
  const statics = Array.from(
    staticVerdicts(staticTokens),
    ([key, verdict]) => [key, staticToken(verdict)] as const,
  );

  /** The revision of the tokens when they were read, and when that was. */
  let revision: string | undefined;
  let readAt = 0;
  /**
   * When the last refresh that succeeded began, by `monotonic`: a token that was revoked before that
   * is known to be.
   */
  let confirmedAt = -Infinity;
  /** The refresh in flight, and the one that follows it. */
  let refreshing: Promise<void> | undefined;
  let following: Promise<void> | undefined;
  /** The tokens by digest; those that ended lately too, so that the log can name the reason. */
  let known = new Map<string, CachedToken>();
  /** The minute of the last use, by the token's name. */
  const unwrittenUses = new Map<string, number>();

  const cache = {
    /**
     * Validates a token, and records its use if it is accepted.
     *
     * @throws {PlantStoreError} `queue_full` if the tokens were last read longer than `maxAgeMs` ago:
     *   it may be revoked by now, or new. A refresh begins, unless one is in flight.
     */
    authenticate(token: string): Verdict {
      if (token.length > MAX_TOKEN_LENGTH) return unknownToken(token);

      const digest = hash("sha256", token, "base64");
      const found = known.get(digest);
      if (found === undefined) {
        const verdict = unknownToken(token);
        // It may have been created since.
        if (!verdict.isForeign) requireYounger(maxAgeMs);
        return verdict;
      }
      if (found.isRevoked) return refused(`"${found.name}" is revoked`);

      const time = now();
      if (found.expiresAt <= time) return refused(`"${found.name}" is expired`);
      requireYounger(found.maxAgeMs);

      const minute = time - (time % MINUTE_MS);
      // It may be later by another server's clock, or by ours while that was wrong.
      if (found.usedAt !== minute && found.usedAt !== NEVER_RECORDED) {
        found.usedAt = minute;
        unwrittenUses.set(found.name, minute);
      }
      return found.verdict;
    },

    /** How many tokens are accepted now. Goes through all of them. */
    size(): number {
      const time = now();
      return [...known.values()].filter(
        ({ isRevoked, expiresAt }) => !isRevoked && expiresAt > time,
      ).length;
    },

    /**
     * The stored token that expires next, in milliseconds since 1970 UTC, of those that were used
     * within a day. What is not used costs no client anything when it ends. Goes through all of them.
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
     * Reads the stored tokens again if they changed: other processes create and revoke tokens. At
     * most one refresh is in flight. It may have missed the latest change, so another one follows
     * it, for all who call meanwhile.
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
     * Writes when tokens were last used, some at a time. What cannot be written is kept for the
     * next call.
     */
    async writeUses(): Promise<void> {
      const uses = Array.from(unwrittenUses, ([name, at]) => ({ name, at: new Date(at) }));
      for (let start = 0; start < uses.length; start += USES_PER_WRITE) {
        const written = uses.slice(start, start + USES_PER_WRITE);
        await store.recordUses(written);

        for (const { name, at } of written) {
          // There may be a later use by now.
          if (unwrittenUses.get(name) === at.getTime()) unwrittenUses.delete(name);
        }
      }
    },
  };

  await cache.refresh();
  return cache;

  /** Requires that the tokens are not older. Otherwise begins a refresh, unless one is in flight. */
  function requireYounger(ageMs: number): void {
    if (monotonic() - confirmedAt <= ageMs) return;
    if (refreshing === undefined) cache.refresh().catch(() => {});
    throw unconfirmed();
  }

  async function readIfChanged(): Promise<void> {
    const beganAt = monotonic();
    const current = await store.revision();
    const time = now();

    // If the clock was set back, tokens that were left out may not have expired yet.
    if (current !== revision || time < readAt) {
      const stored = await store.list({ endedSince: new Date(time - ENDED_MS), digests });
      known = new Map(statics);
      for (const record of stored)
        known.set(digestKey(record.digest), cachedToken(record, maxAgeMs));

      readAt = time;
      // Set last: if a token could not be read, the next refresh reads all of them again.
      revision = current;
    }
    confirmedAt = beganAt;
  }
}

/**
 * Not a 401: a client would throw its token away. A server that cannot read the tokens can hardly
 * store plants, so this costs no plant.
 */
function unconfirmed(): PlantStoreError {
  return new PlantStoreError(
    "queue_full",
    "tokens cannot be validated now; send the plant again later",
    { reason: "tokens unavailable" },
  );
}

const DAY_MS = 86_400_000;

/** How long a server knows why a token is refused after it ended, in milliseconds: a week. */
const ENDED_MS = 7 * DAY_MS;

/** A use is recorded to the minute: one write a minute for each token. */
const MINUTE_MS = 60_000;

/** How many uses are written in one transaction: no plant waits for more. */
const USES_PER_WRITE = 500;

/** Times are in milliseconds since 1970 UTC. */
interface CachedToken {
  readonly name: string;
  /** While it is neither revoked nor expired. */
  readonly verdict: Verdict;
  readonly isRevoked: boolean;
  readonly expiresAt: number;
  /** How long it is accepted after a refresh, in milliseconds. */
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
