import type { TokenRecord, TokenStore } from "./token_store.ts";
import { isMistyped, type Sha256, tokenFinder } from "./tokens.ts";

/** The tokens that count now, in memory: judging one reads nothing. */
export interface KnownTokens {
  /** `true` for a token that counts; else why it does not, for the log only. */
  readonly authenticate: (token: string) => true | string;
  /** How many there are. */
  readonly count: () => number;
  /** Keeps another one, which counts from then on, and resolves to whether its name was free. */
  add(token: Parameters<TokenStore["add"]>[0]): Promise<boolean>;
  /** Notes the uses since the last time, and reads what is kept again: other processes create and revoke. */
  refresh(): Promise<void>;
}

/** What {@linkcode knownTokens} needs. */
export interface KnownTokensOptions {
  /** Tokens that are known without being kept. @default none */
  readonly fixed?: readonly string[];
  readonly sha256: Sha256;
  /** Milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: () => number;
}

/** A use is noted to the minute: that is one write a minute and token, however many calls there are. */
const MINUTE = 60_000;

/** Knows the tokens that are kept, and some more. */
export async function knownTokens(store: TokenStore, options: KnownTokensOptions): Promise<KnownTokens> {
  const { fixed = [], sha256, now = Date.now } = options;
  const always = fixed.map((token) => ({ digest: sha256(token) }));
  const uses = new Map<string, number>();
  let known: readonly { digest: Uint8Array; record?: TokenRecord }[] = always;
  let find = tokenFinder(known, sha256);

  function authenticate(token: string): true | string {
    const found = find(token);
    if (found === undefined) return isMistyped(token, sha256) ? "mistyped" : "unknown";
    return found.record === undefined || judge(found.record);
  }

  function judge({ name, revokedAt, expiresAt, lastUsedAt }: TokenRecord): true | string {
    const at = now();
    if (revokedAt !== null) return `"${name}" is revoked`;
    if (expiresAt !== null && expiresAt.getTime() <= at) return `"${name}" is expired`;
    const minute = at - (at % MINUTE);
    if (lastUsedAt === null || lastUsedAt.getTime() < minute) uses.set(name, minute);
    return true;
  }

  async function refresh(): Promise<void> {
    const used = Array.from(uses, ([name, at]) => ({ name, at: new Date(at) }));
    uses.clear();
    if (used.length > 0) await store.noteUses(used);
    known = [...always, ...(await store.list()).map((record) => ({ digest: record.digest, record }))];
    find = tokenFinder(known, sha256);
  }

  async function add(token: Parameters<TokenStore["add"]>[0]): Promise<boolean> {
    const added = await store.add(token);
    await refresh();
    return added;
  }

  await refresh();
  return { authenticate, count: () => known.length, add, refresh };
}
