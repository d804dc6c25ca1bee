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
 * The port that validates tokens: what may the bearer of this one do now? It returns a promise only if it has to wait. It
 * throws or rejects only with a `PlantStoreError` `queue_full`, if too many tokens wait to be verified.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Authenticate, accepted, refused } from "plant-store";
 *
 * const tenants = new Map([["a-token-of-the-scraper", accepted(["metrics"])]]);
 * const authenticate: Authenticate = (token) => tenants.get(token) ?? refused("unknown");
 *
 * assert.equal((await authenticate("another-token")).ok, false);
 * ```
 */
export type Authenticate = (token: string) => Verdict | Promise<Verdict>;

/**
 * The verdict on a token that may do everything.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ACCEPTED } from "plant-store";
 *
 * assert(ACCEPTED.ok && ACCEPTED.scopes.has("write"));
 * ```
 */
export const ACCEPTED: Verdict = accepted(SCOPES);

/**
 * The verdict on a token with these scopes. It allocates: make it once for each token, not for each request.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { accepted } from "plant-store";
 *
 * const verdict = accepted(["metrics"]);
 *
 * assert(verdict.ok && !verdict.scopes.has("write"));
 * ```
 */
export function accepted(scopes: readonly Scope[]): Verdict {
  return Object.freeze({ ok: true, scopes: new Set(scopes) });
}

/**
 * The verdict on a token that is refused for this reason.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { refused } from "plant-store";
 *
 * assert.deepEqual(refused("expired"), { ok: false, reason: "expired" });
 * ```
 */
export function refused(reason: string): Verdict {
  return { ok: false, reason };
}
