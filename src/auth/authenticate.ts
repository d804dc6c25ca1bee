/**
 * What a token may be used for: to store plants, and to read the metrics.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { SCOPES } from "plant-store";
 *
 * assert.deepEqual(SCOPES, ["write", "metrics"]);
 * ```
 */
export const SCOPES = ["write", "metrics"] as const;
/** One of {@linkcode SCOPES}. */
export type Scope = (typeof SCOPES)[number];

/** The bearer of a token. */
export interface Caller {
  /**
   * The name of a stored token, or `static:` and the position of a static one in its list. For
   * another issuer's token, the issuer's name for the bearer, which may be personal data, or empty.
   * Unique within an issuer.
   */
  readonly subject: string;

  /** The name of another issuer. @default the token is the server's own */
  readonly issuer?: string | undefined;
}

/** An accepted token: its bearer and its scopes. */
export interface Accepted extends Caller {
  readonly ok: true;

  /** The permissions of the token. Other operations are refused with 403. */
  readonly scopes: ReadonlySet<Scope>;

  /** The missing permission, in the issuer's words. @default the required scope */
  readonly lacks?: Lack | undefined;
}

/** A permission that a valid token lacks. */
export interface Lack {
  /** A description for the client and the log, such as `the required scope "plants:write"`. */
  readonly what: string;
  /** The scope to ask the issuer for (RFC 6749, section 3.3). @default none */
  readonly scope?: string | undefined;
}

/** Why a token is refused with 401. */
export interface Refused {
  readonly ok: false;
  /** For the log only. May quote claims that the issuer signed, and nothing else of the token. */
  readonly reason: string;

  /**
   * Whether the token may be another issuer's: then ask the next `authenticate`.
   *
   * @default {false}
   */
  readonly isForeign?: boolean;
}

/** Whether a token is accepted. */
export type Verdict = Accepted | Refused;

/**
 * The port that validates tokens: returns the bearer and the scopes of a token, or why it is
 * refused. Returns a promise only if it has to wait. If it cannot decide now, throws or rejects
 * with a `PlantStoreError` such as `queue_full`: for example, too many tokens wait, or keys are
 * unavailable.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import type { Authenticate, Verdict } from "plant-store";
 *
 * const scraper: Verdict = { ok: true, scopes: new Set(["metrics"]), subject: "scraper" };
 * const tenants = new Map([["a-token-of-the-scraper", scraper]]);
 * const unknown: Verdict = { ok: false, reason: "unknown" };
 * const authenticate: Authenticate = (token) => tenants.get(token) ?? unknown;
 *
 * assert.equal((await authenticate("another-token")).ok, false);
 * ```
 */
export type Authenticate = (token: string) => Verdict | Promise<Verdict>;

/**
 * Returns the verdict that accepts a caller with these scopes. It allocates: call it once for each
 * token, not for each request.
 *
 * @param scopes @default all of them
 */
export function accepted(subject: string, scopes: readonly Scope[] = SCOPES): Accepted {
  const isAll = SCOPES.every((scope) => scopes.includes(scope));
  return { ok: true, scopes: isAll ? EVERY_SCOPE : new Set(scopes), subject };
}

/** The set that all verdicts with every scope share. */
const EVERY_SCOPE: ReadonlySet<Scope> = new Set(SCOPES);

/** Whether a value is a valid name of a scope (RFC 6749, section 3.3). */
export function isScopeName(text: unknown): boolean {
  return typeof text === "string" && /^[!#-[\]-~]+$/.test(text);
}

/** Returns the verdict that refuses a token for this reason. */
export function refused(reason: string): Refused {
  return { ok: false, reason };
}
