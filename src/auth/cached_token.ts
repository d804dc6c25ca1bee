import { SCOPES } from "./scopes.ts";
import type { TokenRecord } from "./token_store.ts";
import { accepted, ACCEPTED, type Verdict } from "./authenticate.ts";

/** A token, and what is known of it. */
export interface CachedToken {
  readonly digest: Uint8Array;
  /** The verdict while it is neither revoked nor expired. */
  readonly verdict: Verdict;
  /** A static token has none. */
  readonly record: TokenRecord | undefined;
  /** The minute of its last use that is recorded, in milliseconds since 1970 UTC. */
  usedAt: number;
}

/** A token of the settings, which has no name, no scopes and no end. */
export function staticToken(digest: Uint8Array): CachedToken {
  return { digest, verdict: ACCEPTED, record: undefined, usedAt: 0 };
}

/** A token of the store. Its verdict is made here, not at a request. */
export function cachedToken(record: TokenRecord): CachedToken {
  const { digest, lastUsedAt, scopes } = record;
  const verdict = SCOPES.every((scope) => scopes.includes(scope)) ? ACCEPTED : accepted(scopes);
  return { digest, verdict, record, usedAt: lastUsedAt?.getTime() ?? 0 };
}

/** Why a stored token is not accepted at a time, if it is not. */
export function refusalOf({ name, revokedAt, expiresAt }: TokenRecord, now: number): string | undefined {
  if (revokedAt !== null) return `"${name}" is revoked`;
  if (expiresAt !== null && expiresAt.getTime() <= now) return `"${name}" is expired`;
  return undefined;
}

/** When it expires, in milliseconds since 1970 UTC. */
export function expiryOf({ record }: CachedToken): number {
  return record?.expiresAt?.getTime() ?? Infinity;
}
