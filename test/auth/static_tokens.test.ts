import { expect, test } from "bun:test";

import { accepted } from "../../src/auth/authenticate.ts";
import { staticTokens } from "../../src/auth/static_tokens.ts";
import { mintToken, unknownToken } from "../../src/auth/token_format.ts";

test("staticTokens() accepts its own tokens, even one given twice, and says why it refuses others", () => {
  const token = "a-token-of-the-greenhouse";
  const { token: minted } = mintToken();
  const longest = "x".repeat(8_192);
  const authenticate = staticTokens([token, minted, longest, token]);
  expect([token, minted, longest].map(authenticate)).toEqual([
    accepted("static:1"),
    accepted("static:2"),
    accepted("static:3"),
  ]);

  const similar = [
    "",
    `${token}x`,
    token.slice(0, -1),
    token.slice(1),
    token.toUpperCase(),
    ` ${token}`,
  ];

  for (const unknown of [...similar, mintToken().token])
    expect(authenticate(unknown)).toEqual(unknownToken(unknown));
  expect(authenticate(minted.slice(0, -1))).toEqual(unknownToken(minted.slice(0, -1)));
  expect(authenticate(`${longest}x`)).toEqual(unknownToken(`${longest}x`));
});

test.each([
  [["known-token-0123456789", "secret"], "token 2 has fewer than 16 characters"],
  [["known-token-0123456789", "x".repeat(8_193)], "token 2 has more than 8192 characters"],
  [["no spaces are in a token"], "token 1 has characters that a bearer token cannot have"],
  [["one-token-of-many,another-one"], "token 1 has characters that a bearer token cannot have"],
  [[], "expected at least one"],
  ["a-token-of-the-greenhouse" as never, "expected a list"],
  [undefined as never, "expected a list"],
])(
  "staticTokens() refuses what cannot be used, and does not repeat it: case %#",
  (tokens, fault) => {
    expect(() => staticTokens(tokens)).toThrow(new TypeError(`Cannot use static tokens: ${fault}`));
  },
);
