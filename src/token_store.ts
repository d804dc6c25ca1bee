/** What is kept of a token: never the token itself. */
export interface TokenRecord {
  /** What people call it; unique. */
  readonly name: string;
  /** SHA-256 of the token, 32 bytes. */
  readonly digest: Uint8Array;
  /** When it was made. */
  readonly createdAt: Date;
  /** From when on it does not count any more, if ever. */
  readonly expiresAt: Date | null;
  /** When it was revoked, if it was. */
  readonly revokedAt: Date | null;
  /** When it was last used, to the minute. */
  readonly lastUsedAt: Date | null;
}

/** A token to be stored. */
export type NewToken = Pick<TokenRecord, "name" | "digest" | "createdAt" | "expiresAt">;

/** The port behind which tokens are kept. */
export interface TokenStore {
  /** Every token kept, revoked and expired ones too, oldest first. */
  list(): Promise<readonly TokenRecord[]>;
  /** Stores a new token, and resolves to whether it did: a name that is taken changes nothing. */
  add(token: NewToken): Promise<boolean>;
  /** Revokes a token, and resolves to whether there was one to revoke. */
  revoke(name: string, at: Date): Promise<boolean>;
  /** Records when tokens were last used; a name that is not stored changes nothing. */
  recordUses(uses: readonly TokenUse[]): Promise<void>;
}

/** One token's last use. */
export interface TokenUse {
  readonly name: string;
  readonly at: Date;
}
