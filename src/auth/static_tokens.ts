import { hash } from "node:crypto";

import { type Accepted, accepted, type Authenticate } from "./authenticate.ts";
import { MAX_TOKEN_LENGTH, staticTokenFault, unknownToken } from "./token_format.ts";

/**
 * Returns an `authenticate` that accepts only these bearer tokens, each with every scope. It looks
 * up digests: a check costs the same for any number of tokens, and for a token that is nearly
 * right.
 *
 * @param tokens At least one token. Each has 16 to 8,192 of the characters that RFC 6750, section
 *   2.1, allows.
 * @throws {TypeError} If the list is empty, or a token cannot be used. The message has the token's
 *   position in the list, not the token.
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
  const verdicts = staticVerdicts(tokens);
  if (verdicts.size === 0) throw new TypeError("Cannot use static tokens: expected at least one");

  return (token) => {
    if (token.length > MAX_TOKEN_LENGTH) return unknownToken(token);
    return verdicts.get(hash("sha256", token, "base64")) ?? unknownToken(token);
  };
}

/**
 * Returns the verdicts on static tokens, by the keys of their digests. The first of equal tokens
 * counts. Their subjects have a colon, which no stored token's name has.
 *
 * @throws {TypeError} If a token cannot be used. The message has the token's position in the list,
 *   not the token.
 */
export function staticVerdicts(tokens: readonly string[]): Map<string, Accepted> {
  // A string would count as a list of its characters.
  if (!Array.isArray(tokens)) throw new TypeError("Cannot use static tokens: expected a list");

  const verdicts = tokens.map((token: string, index) => {
    const fault = staticTokenFault(token);
    if (fault !== undefined)
      throw new TypeError(`Cannot use static tokens: token ${index + 1} ${fault}`);
    return [hash("sha256", token, "base64"), accepted(`static:${index + 1}`)] as const;
  });
  return new Map(verdicts.toReversed());
}
