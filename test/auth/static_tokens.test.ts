import { expect, test } from "bun:test";
import { ACCEPTED, refused } from "../../src/auth/authenticate.ts";
import { sha256 } from "../../src/auth/sha256.ts";
import { staticTokens } from "../../src/auth/static_tokens.ts";
import { mintToken } from "../../src/auth/tokens.ts";

test("staticTokens() accepts its own tokens, one given twice too, and no others", () => {
  const [token, other] = ["a-token-of-the-greenhouse", "a-token-of-the-garden"];
  const authenticate = staticTokens([token, other, token]);
  for (const own of [token, other]) expect(authenticate(own)).toEqual(ACCEPTED);
  for (const unknown of ["", `${token}x`, token.slice(0, -1), token.slice(1), token.toUpperCase(), ` ${token}`]) {
    expect(authenticate(unknown)).toEqual(refused("unknown"));
  }
});

test("staticTokens() tells a minted token that was copied wrongly from an unknown one", () => {
  const token = mintToken(sha256);
  const authenticate = staticTokens([token]);
  expect(authenticate(token)).toEqual(ACCEPTED);
  expect(authenticate(token.slice(0, -1))).toEqual(refused("mistyped"));
  expect(authenticate(mintToken(sha256))).toEqual(refused("unknown"));
});

test("staticTokens() takes tokens of up to 8,192 characters, and refuses longer ones unhashed", () => {
  const longest = "x".repeat(8_192);
  const authenticate = staticTokens([longest]);
  expect(authenticate(longest)).toEqual(ACCEPTED);
  expect(authenticate(`${longest}x`)).toEqual(refused("too long"));
});

test.each([
  [["known-token-0123456789", "secret"], "token 2 has fewer than 16 characters"],
  [["known-token-0123456789", "x".repeat(8_193)], "token 2 has more than 8192 characters"],
  [["no spaces are in a token"], "token 1 has characters that a bearer token cannot have"],
  [["one-token-of-many,another-one"], "token 1 has characters that a bearer token cannot have"],
  [[], "expected at least one"],
])("staticTokens() refuses what cannot be used, and does not repeat it: case %#", (tokens, fault) => {
  expect(() => staticTokens(tokens)).toThrow(new TypeError(`Cannot use static tokens: ${fault}`));
});
