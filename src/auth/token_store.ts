import { type Scope, SCOPES } from "./authenticate.ts";

/** What is stored of a token: never the token itself. */
export interface TokenRecord {
  /** What people call it; unique. */
  readonly name: string;
  /** SHA-256 of the token, 32 bytes. */
  readonly digest: Uint8Array;
  /** When it was made. */
  readonly createdAt: Date;
  /** From when on it is not accepted any more, if ever. */
  readonly expiresAt: Date | null;
  /** When it was revoked, if it was. */
  readonly revokedAt: Date | null;
  /** When it was last used, to the minute. */
  readonly lastUsedAt: Date | null;
  /** What it may be used for. */
  readonly scopes: readonly Scope[];
}

/** A token to be stored. */
export type NewToken = Pick<TokenRecord, "name" | "digest" | "createdAt" | "expiresAt" | "scopes">;

/**
 * The port behind which tokens are stored. `tokenStoreContract` of `plant-store/testing` holds each adapter to these
 * comments.
 *
 * @example A token for the greenhouse
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryDatabase, mintToken, sha256, type TokenStore } from "plant-store";
 *
 * const tokens: TokenStore = memoryDatabase().tokens;
 * const digest = sha256(mintToken(sha256));
 * const createdAt = new Date();
 *
 * assert.equal(await tokens.add({ name: "greenhouse", digest, createdAt, expiresAt: null, scopes: ["write"] }), true);
 * ```
 */
export interface TokenStore {
  /** Every token stored, revoked and expired ones too, oldest first. */
  list(): Promise<readonly TokenRecord[]>;
  /**
   * Whether {@linkcode list} has to be read again: the revision differs from the one before when tokens were added, revoked or
   * removed meanwhile, by this process or another, and stays when only plants or uses were written. Servers ask every
   * few seconds, so it costs little, however many tokens are stored. Ask before `list`: what comes between is then read
   * twice, and never missed.
   */
  revision(): Promise<string>;
  /** Stores a new token, and resolves to whether it did: a name that is taken changes nothing. */
  add(token: NewToken): Promise<boolean>;
  /** Revokes a token, and resolves to whether there was one to revoke. */
  revoke(name: string, at: Date): Promise<boolean>;
  /** Deletes a token for good, and resolves to whether there was one: its name is free again. */
  delete(name: string): Promise<boolean>;
  /** Deletes every token that is revoked, or has expired by then, and resolves to how many that were. */
  prune(at: Date): Promise<number>;
  /**
   * Records when tokens were last used, all in one transaction. A later use that is stored already stays, and a name
   * that is not stored changes nothing.
   */
  recordUses(uses: readonly TokenUse[]): Promise<void>;
}

/** One token's last use. */
export interface TokenUse {
  readonly name: string;
  readonly at: Date;
}

/** Scopes as they are stored: separated by spaces (RFC 6749, section 3.3). */
export function formatScopes(scopes: readonly Scope[]): string {
  return scopes.join(" ");
}

/**
 * The inverse of {@linkcode formatScopes}.
 *
 * @param text `null` for all scopes: what a token from before there were any may do.
 */
export function parseScopes(text: string | null): readonly Scope[] {
  if (text === null) return SCOPES;
  const names = text.split(" ");
  return SCOPES.filter((scope) => names.includes(scope));
}
