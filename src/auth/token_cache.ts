import { ACCEPTED, refused, type Verdict } from "./authenticate.ts";
import type { NewToken, TokenRecord, TokenStore } from "../token_store.ts";
import { isMistyped, type Sha256, tokenFinder } from "./tokens.ts";

/** The tokens that count now, in memory: judging one reads nothing. */
export interface TokenCache {
  /** Judges a token, and records its use if it is accepted. */
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
  readonly fixed?: readonly string[];
  readonly sha256: Sha256;
  /** Milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: () => number;
}

/** A use is recorded to the minute: that is one write a minute and token, however many calls there are. */
const MINUTE = 60_000;

/** How many uses are written in one transaction: plants wait for no more than this. */
const USES_PER_WRITE = 500;

/** A token and what is known of it: a fixed one is not stored. */
interface CachedToken {
  readonly digest: Uint8Array;
  readonly record?: TokenRecord;
  /** The minute of the last use that was recorded, in milliseconds since 1970 UTC. */
  usedAt: number;
}

/** Caches the tokens that are stored, and some more. */
export async function tokenCache(store: TokenStore, options: TokenCacheOptions): Promise<TokenCache> {
  const { fixed = [], sha256, now = Date.now } = options;
  const always = fixed.map((token) => ({ digest: sha256(token), usedAt: 0 }));
  const unwrittenUses = new Map<string, number>();
  let revision: string | undefined;
  let cached: readonly CachedToken[] = always;
  let find = tokenFinder(cached, sha256);

  function authenticate(token: string): Verdict {
    const found = find(token);
    if (found === undefined) return refused(isMistyped(token, sha256) ? "mistyped" : "unknown");
    if (found.record === undefined) return ACCEPTED;
    const reason = refusalOf(found.record, now());
    if (reason !== undefined) return refused(reason);
    recordUse(found, found.record.name);
    return ACCEPTED;
  }

  function recordUse(token: CachedToken, name: string): void {
    const at = now();
    const minute = at - (at % MINUTE);
    if (token.usedAt >= minute) return;
    token.usedAt = minute;
    unwrittenUses.set(name, minute);
  }

  async function writeUses(): Promise<void> {
    const uses = [...unwrittenUses];
    for (let start = 0; start < uses.length; start += USES_PER_WRITE) {
      await writePiece(uses.slice(start, start + USES_PER_WRITE));
    }
  }

  async function writePiece(uses: readonly [string, number][]): Promise<void> {
    await store.recordUses(uses.map(([name, at]) => ({ name, at: new Date(at) })));
    // A later use may have come meanwhile.
    for (const [name, at] of uses) if (unwrittenUses.get(name) === at) unwrittenUses.delete(name);
  }

  async function refresh(): Promise<void> {
    const current = await store.revision();
    if (current === revision) return;
    const stored = await store.list();
    cached = [...always, ...stored.map(cachedToken)];
    revision = current;
    find = tokenFinder(cached, sha256);
  }

  function size(): number {
    return cached.filter(({ record }) => record === undefined || refusalOf(record, now()) === undefined).length;
  }

  async function add(token: NewToken): Promise<boolean> {
    const added = await store.add(token);
    await refresh();
    return added;
  }

  await refresh();
  return { authenticate, size, add, refresh, writeUses };
}

function cachedToken(record: TokenRecord): CachedToken {
  return { digest: record.digest, record, usedAt: record.lastUsedAt?.getTime() ?? 0 };
}

/** Why a stored token is not accepted at a time, if it is not. */
function refusalOf({ name, revokedAt, expiresAt }: TokenRecord, now: number): string | undefined {
  if (revokedAt !== null) return `"${name}" is revoked`;
  if (expiresAt !== null && expiresAt.getTime() <= now) return `"${name}" is expired`;
  return undefined;
}
