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

/** What the bearer of a token may do, or why it may do nothing. */
export type Verdict =
  /** Anything outside of the scopes is refused with 403. */
  | { readonly ok: true; readonly scopes: ReadonlySet<Scope> }
  /** The reason is for the log only, and contains no part of the token. */
  | { readonly ok: false; readonly reason: string };

/**
 * The port that validates tokens: what may the bearer of this one do now? It returns a promise only
 * if it has to wait. It throws or rejects only with a `PlantStoreError` `queue_full`, if too many
 * tokens wait to be verified.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import type { Authenticate, Verdict } from "plant-store";
 *
 * const scraper: Verdict = { ok: true, scopes: new Set(["metrics"]) };
 * const tenants = new Map([["a-token-of-the-scraper", scraper]]);
 * const unknown: Verdict = { ok: false, reason: "unknown" };
 * const authenticate: Authenticate = (token) => tenants.get(token) ?? unknown;
 *
 * assert.equal((await authenticate("another-token")).ok, false);
 * ```
 */
export type Authenticate = (token: string) => Verdict | Promise<Verdict>;

/**
 * The verdict on a token with these scopes. It allocates: make it once for each token, not for each
 * request.
 */
export function accepted(scopes: readonly Scope[]): Verdict {
  return { ok: true, scopes: new Set(scopes) };
}

/** The verdict on a token that may do everything. */
export const ACCEPTED = accepted(SCOPES);

/** The verdict on a token that is refused for this reason. */
export function refused(reason: string): Verdict {
  return { ok: false, reason };
}
