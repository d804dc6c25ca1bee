import { hash } from "node:crypto";

import { accepted, refused, type Verdict } from "./authenticate.ts";
import { staticVerdict } from "./static_tokens.ts";
import { digestKey, isMistyped, MAX_TOKEN_LENGTH, requireStaticTokens } from "./token_format.ts";
import type { NewToken, TokenRecord, TokenStore } from "./token_store.ts";

/** The tokens in memory: validating one costs the same for any number of tokens. */
export type TokenCache = Awaited<ReturnType<typeof tokenCache>>;

/** Options of {@linkcode tokenCache}. */
export interface TokenCacheOptions {
  /**
   * Tokens that are accepted without being stored, each as `staticTokens()` takes it.
   *
   * @default none
   */
  readonly staticTokens?: readonly string[];
  /** Milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: () => number;
}

/**
 * Caches the stored tokens and the static ones.
 *
 * @throws {TypeError} If a static token cannot be used.
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
 * assert.deepEqual(cache.authenticate("another-token"), { ok: false, reason: "unknown" });
 * ```
 */
export async function tokenCache(
  store: TokenStore,
  { staticTokens = [], now = Date.now }: TokenCacheOptions = {},
) {
  requireStaticTokens(staticTokens);

  /** A static token may be stored as well: if it was ever revoked, it stays refused. */
  const digests = staticTokens.map((token) => hash("sha256", token, "buffer"));
  const statics = digests
    .map((digest, index) => [digestKey(digest), staticToken(index)] as const)
    // The first of equal tokens counts.
    .toReversed();

  /** The revision of the tokens when they were read, and when that was. */
  let revision: string | undefined;
  let readAt = 0;
  /** The tokens by digest; those that ended lately too, so that the log can name the reason. */
  let known = new Map<string, CachedToken>();
  /** The minute of the last use, by the token's name. */
  const unwrittenUses = new Map<string, number>();

  const cache = {
    /** Validates a token, and records its use if it is accepted. */
    authenticate(token: string): Verdict {
      if (token.length > MAX_TOKEN_LENGTH) return refused("too long");

      const found = known.get(hash("sha256", token, "base64"));
      if (found === undefined) return refused(isMistyped(token) ? "mistyped" : "unknown");
      if (found.isRevoked) return refused(`"${found.name}" is revoked`);

      const time = now();
      if (found.expiresAt <= time) return refused(`"${found.name}" is expired`);

      const minute = time - (time % MINUTE_MS);
      if (found.usedAt < minute) {
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
     * Stores a new token, which is accepted from then on, and resolves to whether its name was
     * free.
     */
    async add(token: NewToken): Promise<boolean> {
      const added = await store.add(token);
      await cache.refresh();
      return added;
    },

    /** Reads the stored tokens again if they changed: other processes create and revoke tokens. */
    async refresh(): Promise<void> {
      const current = await store.revision();
      const time = now();
      // If the clock was set back, tokens that were left out may not have expired yet.
      if (current === revision && time >= readAt) return;

      const stored = await store.list({ endedSince: new Date(time - ENDED_MS), digests });
      known = new Map(statics);
      for (const record of stored) known.set(digestKey(record.digest), cachedToken(record));

      readAt = time;
      // Set last: if a token could not be read, the next refresh reads all of them again.
      revision = current;
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
}

/** How long a server knows why a token is refused after it ended, in milliseconds: a week. */
const ENDED_MS = 7 * 86_400_000;

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
  /** The minute of its last recorded use. */
  usedAt: number;
}

/** Its uses are not recorded. */
function staticToken(index: number): CachedToken {
  const verdict = staticVerdict(index);
  const name = verdict.subject;
  return { name, verdict, isRevoked: false, expiresAt: Infinity, usedAt: Infinity };
}

function cachedToken({ name, scopes, revokedAt, expiresAt, lastUsedAt }: TokenRecord): CachedToken {
  return {
    name,
    verdict: accepted(name, scopes),
    isRevoked: revokedAt !== null,
    expiresAt: expiresAt?.getTime() ?? Infinity,
    usedAt: lastUsedAt?.getTime() ?? 0,
  };
}
