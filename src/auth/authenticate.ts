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

/** Whose token it is. */
export interface Caller {
  /**
   * The name of a stored token, or `static:` and the place of a static one in its list. Of another
   * issuer, its name for the bearer, which may be personal data, or empty. Unique among the callers of
   * an issuer.
   */
  readonly subject: string;

  /** The name of another issuer. @default the token is the server's own */
  readonly issuer?: string | undefined;
}

/** An accepted token: its bearer and its scopes. */
export interface Accepted extends Caller {
  readonly ok: true;

  /** Anything outside of the scopes is refused with 403. */
  readonly scopes: ReadonlySet<Scope>;

  /**
   * What the token lacks for more scopes, in the words of its issuer. @default the scope itself
   */
  readonly lacks?: Lack | undefined;
}

/** Why a valid token may not do what it is used for. */
export interface Lack {
  /** Such as `the required scope "plants:write"`. For the client and the log. */
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
   * Whether another issuer may have made the token: then ask the next `authenticate`.
   *
   * @default {false}
   */
  readonly isForeign?: boolean;
}

/** Whether a token is accepted. */
export type Verdict = Accepted | Refused;

/**
 * The port that validates tokens: whose token is it, and what does it permit now? It
 * returns a promise only if it has to wait. It throws or rejects with a `PlantStoreError`,
 * such as `queue_full`, if it cannot tell now: too many tokens wait to be verified, or the keys to
 * verify them are unavailable.
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
 * The verdict on a token of a caller, with these scopes. It allocates: make it once for each token,
 * not for each request.
 *
 * @param scopes @default all of them
 */
export function accepted(subject: string, scopes: readonly Scope[] = SCOPES): Accepted {
  const isAll = SCOPES.every((scope) => scopes.includes(scope));
  return { ok: true, scopes: isAll ? EVERY_SCOPE : new Set(scopes), subject };
}

/** One set for the verdicts on all tokens that may do everything. */
const EVERY_SCOPE: ReadonlySet<Scope> = new Set(SCOPES);

/** Whether a text is the name of a scope (RFC 6749, section 3.3). */
export function isScopeName(text: unknown): boolean {
  return typeof text === "string" && /^[!#-[\]-~]+$/.test(text);
}

/** The verdict on a token that is refused for this reason. */
export function refused(reason: string): Refused {
  return { ok: false, reason };
}
