import { expect, test } from "bun:test";
import { sha256 } from "../../src/auth/sha256.ts";
import { staticTokens } from "../../src/auth/static_tokens.ts";
import { ACCEPTED, refused } from "../../src/auth/authenticate.ts";
import { mintToken } from "../../src/auth/tokens.ts";

test("staticTokens() accepts its own tokens, and no others", () => {
  const tokens = Array.from({ length: 50 }, () => mintToken(sha256).slice("plant_".length));
  const authenticate = staticTokens(tokens);
  expect(tokens.map(authenticate)).toEqual(tokens.map(() => ACCEPTED));
  for (const token of tokens) {
    for (const other of [`${token}x`, token.slice(0, -1), token.slice(1), token.toLowerCase(), ` ${token}`]) {
      expect(authenticate(other)).toEqual(refused("unknown"));
    }
  }
  expect(authenticate("")).toEqual(refused("unknown"));
});

test("staticTokens() of none accepts none, and of one twice accepts it", () => {
  const token = "known-token-0123456789";
  expect(staticTokens([])(token)).toEqual(refused("unknown"));
  expect(staticTokens([token, token])(token)).toEqual(ACCEPTED);
});

test("staticTokens() tells a minted token that was copied wrongly from an unknown one", () => {
  const token = mintToken(sha256);
  const authenticate = staticTokens([token]);
  expect(authenticate(token)).toEqual(ACCEPTED);
  expect(authenticate(token.slice(0, -1))).toEqual(refused("mistyped"));
  expect(authenticate(mintToken(sha256))).toEqual(refused("unknown"));
});

test.each([
  ["secret", "has fewer than 16 characters"],
  ["no spaces are in a token", "has characters that a bearer token cannot have"],
  ["one-token-of-many,another-one", "has characters that a bearer token cannot have"],
])("staticTokens() refuses %j, and does not repeat it", (token, fault) => {
  const message = `Cannot use static tokens: token 2 ${fault}`;
  expect(() => staticTokens(["known-token-0123456789", token])).toThrow(new TypeError(message));
});
