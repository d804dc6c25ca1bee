import { type Scope, SCOPES } from "./authenticate.ts";

/** A stored token: its digest, never the token itself. */
export interface TokenRecord {
  /** The unique name of the token. */
  readonly name: string;
  /** SHA-256 of the token, 32 bytes. */
  readonly digest: Uint8Array;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  readonly revokedAt: Date | null;
  /** When the token was last used, to the minute. */
  readonly lastUsedAt: Date | null;
  readonly scopes: readonly Scope[];
}

/** Returns the status of a token: only an `active` one is accepted. */
export function tokenStatus({
  revokedAt,
  expiresAt,
}: TokenRecord): "active" | "expired" | "revoked" {
  if (revokedAt !== null) return "revoked";
  return expiresAt !== null && expiresAt.getTime() <= Date.now() ? "expired" : "active";
}

/** A token to be stored. */
export interface NewToken extends Pick<
  TokenRecord,
  "name" | "digest" | "createdAt" | "expiresAt" | "scopes"
> {
  /** When the token was revoked: an imported token may be. @default {null} */
  readonly revokedAt?: Date | null;
}

/**
 * The port that stores tokens. `tokenStoreContract` of `plant-store/testing` tests an adapter.
 *
 * @example A token for the greenhouse
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryTokens, mintToken, type TokenStore } from "plant-store";
 *
 * const tokens: TokenStore = memoryTokens();
 * const { digest } = mintToken();
 * const times = { createdAt: new Date(), expiresAt: null };
 * const isNew = await tokens.add({ name: "greenhouse", digest, ...times, scopes: ["write"] });
 *
 * assert.equal(isNew, true);
 * ```
 */
export interface TokenStore {
  /** Resolves to all tokens, including revoked and expired ones, oldest first. */
  list(): Promise<readonly TokenRecord[]>;

  /**
   * Resolves to a text that changes when any process adds, revokes or deletes tokens, but not when
   * plants or uses are written. Servers read it every second. Read it before {@linkcode list}:
   * a change between the two is then read twice, and never missed.
   */
  revision(): Promise<string>;

  /**
   * Stores a new token, and resolves to true. If its name or digest is taken, changes nothing, and
   * resolves to false.
   */
  add(token: NewToken): Promise<boolean>;

  /** Revokes a token, and resolves to whether there was an unrevoked one. */
  revoke(name: string, at: Date): Promise<boolean>;

  /** Deletes a token, which frees its name. Resolves to whether the token existed. */
  delete(name: string): Promise<boolean>;

  /** Deletes all tokens that are revoked or expired at this time, and resolves to their number. */
  prune(at: Date): Promise<number>;

  /**
   * Records last uses in one transaction. Keeps a later use that is stored already, unless it is more
   * than {@linkcode MAX_AHEAD_MS} later, and ignores unknown names.
   */
  recordUses(uses: readonly TokenUse[]): Promise<void>;
}

/** The operations that a server uses. Only commands revoke and delete tokens. */
export type ServerTokens = Pick<TokenStore, "list" | "revision" | "add" | "recordUses">;

/**
 * How long a server accepts a stored token after it last read the tokens, in milliseconds. A new token
 * is accepted, and a revoked one refused, within this time.
 */
export const TOKENS_MAX_AGE_MS = 5_000;

/** The last use of a token. */
export interface TokenUse {
  readonly name: string;
  readonly at: Date;
}

/**
 * How much later than a use a stored one may be, in milliseconds: a day. If it is later still, the
 * clock of its writer was wrong.
 */
export const MAX_AHEAD_MS = 86_400_000;

/** Formats scopes for storage: separated by spaces (RFC 6749, section 3.3). */
export function formatScopes(scopes: readonly Scope[]): string {
  return scopes.join(" ");
}

/** The inverse of {@linkcode formatScopes}. Ignores words that are not scopes. `null` has none. */
export function parseScopes(text: string | null): readonly Scope[] {
  const names = text?.split(" ") ?? [];
  return SCOPES.filter((scope) => names.includes(scope));
}
