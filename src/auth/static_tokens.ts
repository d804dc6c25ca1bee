import { hash } from "node:crypto";

import { type Accepted, accepted, type Authenticate } from "./authenticate.ts";
import { MAX_TOKEN_LENGTH, requireStaticTokens, unknownToken } from "./token_format.ts";

/**
 * Accepts these bearer tokens, each for everything, and no others. It compares digests, so a check
 * costs the same for any number of tokens, and takes no longer for one that is nearly right.
 *
 * @param tokens At least one. Each has 16 to 8,192 characters, of those that RFC 6750 allows
 *   (section 2.1).
 * @throws {TypeError} If there is none, or one cannot be used. The message has its place in the
 *   list, not the token.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { staticTokens } from "plant-store";
 *
 * const authenticate = staticTokens(["a-token-of-the-greenhouse"]);
 *
 * assert.equal((await authenticate("a-token-of-the-greenhouse")).ok, true);
 * assert.equal((await authenticate("another-token")).ok, false);
 * ```
 */
export function staticTokens(tokens: readonly string[]): Authenticate {
  requireStaticTokens(tokens);
  if (tokens.length === 0) throw new TypeError("Cannot use static tokens: expected at least one");

  const verdicts = staticVerdicts(tokens);
  return (token) => {
    if (token.length > MAX_TOKEN_LENGTH) return unknownToken(token);
    return verdicts.get(hash("sha256", token, "base64")) ?? unknownToken(token);
  };
}

/**
 * The verdicts on static tokens, by the keys of their digests. The first of equal tokens counts. No
 * stored token's name has a colon.
 */
export function staticVerdicts(tokens: readonly string[]): Map<string, Accepted> {
  const verdicts = tokens.map(
    (token, index) => [hash("sha256", token, "base64"), accepted(`static:${index + 1}`)] as const,
  );
  return new Map(verdicts.toReversed());
}
