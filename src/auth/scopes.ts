/**
 * What a caller may be allowed to do: store plants, and read the metrics.
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
