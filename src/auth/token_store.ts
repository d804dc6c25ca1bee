import { type Scope, SCOPES } from "./authenticate.ts";

/** What is stored of a token: never the token itself. */
export interface TokenRecord {
  /** What people call it; unique. */
  readonly name: string;
  /** SHA-256 of the token, 32 bytes. */
  readonly digest: Uint8Array;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  readonly revokedAt: Date | null;
  /** When it was last used, to the minute. */
  readonly lastUsedAt: Date | null;
  readonly scopes: readonly Scope[];
}

/** What a token is now: only an `active` one is accepted. */
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
  /** When it was revoked: a token from another database may be. @default {null} */
  readonly revokedAt?: Date | null;
}

/**
 * The port behind which tokens are stored: `tokenStoreContract` of `plant-store/testing` tests an
 * adapter.
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
  /** Every token stored, revoked and expired ones too, oldest first; or those of a filter. */
  list(filter?: TokenFilter): Promise<readonly TokenRecord[]>;

  /**
   * Changes when any process adds, revokes or deletes tokens, but not when plants or uses are
   * written. Servers read it every few seconds. Read it before {@linkcode list}: a change between
   * the two is then read twice, and never missed.
   */
  revision(): Promise<string>;

  /**
   * Stores a new token, and resolves to whether it did: a name or a digest that is taken changes
   * nothing.
   */
  add(token: NewToken): Promise<boolean>;

  /** Revokes a token, and resolves to whether there was one to revoke. */
  revoke(name: string, at: Date): Promise<boolean>;

  /** Deletes a token, and resolves to whether there was one: its name is free again. */
  delete(name: string): Promise<boolean>;

  /**
   * Deletes every token that is revoked or expired at this time, and resolves to how many there
   * were.
   */
  prune(at: Date): Promise<number>;

  /**
   * Records last uses in one transaction. Keeps a later use that is stored already, unless it is more
   * than {@linkcode MAX_AHEAD_MS} later, and ignores unknown names.
   */
  recordUses(uses: readonly TokenUse[]): Promise<void>;
}

/** What a server does with tokens. Commands revoke and delete them. */
export type ServerTokens = Pick<TokenStore, "list" | "revision" | "add" | "recordUses">;

/**
 * How long a server accepts a stored token after it last read the tokens, in milliseconds, on a database that
 * cannot store plants without its tokens. A new token is accepted, and a revoked one refused, within this time.
 */
export const TOKENS_MAX_AGE_MS = 5_000;

/** The tokens that a server needs: those that ended long ago would only cost memory. */
export interface TokenFilter {
  /** Leaves out tokens that were revoked or expired before this time. */
  readonly endedSince: Date;
  /** Keeps tokens with these digests, whenever they ended. */
  readonly digests: readonly Uint8Array[];
}

/** The last use of a token. */
export interface TokenUse {
  readonly name: string;
  readonly at: Date;
}

/**
 * How much later than a use a stored one may be, in milliseconds: a day. Beyond that, the clock that it was
 * written by was wrong.
 */
export const MAX_AHEAD_MS = 86_400_000;

/** Scopes as they are stored: separated by spaces (RFC 6749, section 3.3). */
export function formatScopes(scopes: readonly Scope[]): string {
  return scopes.join(" ");
}

/**
 * The inverse of {@linkcode formatScopes}. What is not a scope, `null` included, grants nothing.
 */
export function parseScopes(text: string | null): readonly Scope[] {
  const names = text?.split(" ") ?? [];
  return SCOPES.filter((scope) => names.includes(scope));
}
