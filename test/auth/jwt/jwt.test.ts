import { expect, setDefaultTimeout, spyOn, test } from "bun:test";

import * as fc from "fast-check";
import { base64url, CompactSign, type JWTPayload } from "jose";

import { accepted, type Scope, SCOPES } from "../../../src/auth/authenticate.ts";
import type { JwtOptions } from "../../../src/auth/jwt/jwt.ts";
import type { PlantStoreError } from "../../../src/errors.ts";
import { postPlant, testApp } from "../../support/app.ts";
import {
  AUDIENCE,
  CLAIMS,
  HOURS,
  identityProvider,
  ISSUER,
  jwksServer,
  NOW,
  SECONDS,
  signed,
  type SigningKey,
  signingKey,
  unsigned,
  UTF8,
} from "../../support/jwt_provider.ts";
import { fern } from "../../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { readError } from "../../support/responses.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Scopes

test.each<[JWTPayload, readonly Scope[]]>([
  [{ scope: "plants:write" }, SCOPES],
  [{ scope: "openid plants:write profile" }, SCOPES],
  [{}, []],
  [{ scope: "" }, []],
  [{ scope: "plants" }, []],
  [{ scope: "plants:write:all" }, []],
  [{ scope: "Plants:Write" }, []],
  [{ scope: ["plants:write"] }, SCOPES],
  [{ scope: ["openid", "plants:write"] }, SCOPES],
  [{ scope: ["openid plants:write"] }, []],
  [{ scope: ["plants:write:all", "plants"] }, []],
  [{ scope: [["plants:write"]] }, []],
  [{ scope: [] }, []],
  [{ scope: 1 }, []],
  [{ roles: ["plants:write"] }, SCOPES],
  [{ roles: ["plants"] }, []],
  [{ roles: [["plants:write"]] }, []],
  [{ scp: "openid", roles: ["plants:write"] }, []],
  [{ realm_access: { roles: ["plants:write"] } }, []],
  [{ scope: { "plants:write": true } }, []],
  [{ scp: "openid plants:write" }, SCOPES],
  [{ scp: ["openid", "plants:write"] }, SCOPES],
  [{ scp: "plants" }, []],
  [{ scp: ["plants:write:all", "plants"] }, []],
  [{ scp: [["plants:write"]] }, []],
  [{ scp: { "plants:write": true } }, []],
  [{ scope: "openid", scp: "plants:write" }, []],
  [{ scope: "openid", scp: ["plants:write"] }, []],
  [{ scope: null, scp: ["plants:write"] }, []],
])("a token with %p may do %p if `plants:write` is required", async (claims, scopes) => {
  await using idp = await identityProvider({ scope: "plants:write" });
  const token = await signed(idp.key, { ...CLAIMS, ...claims });
  const lacks = { what: 'the required scope "plants:write"', scope: "plants:write" };
  const verdict = {
    ...accepted("gardener", scopes),
    issuer: ISSUER,
    ...(scopes.length === 0 && { lacks }),
  };
  expect(await idp.authenticate(token)).toEqual(verdict);
  expect(idp.authenticate(token)).toEqual(verdict);
});

// Remembered tokens

test("a token that comes many times at once is verified once, and then never again", async () => {
  await using idp = await identityProvider();
  using verify = spyOn(crypto.subtle, "verify");
  const token = await signed(idp.key, CLAIMS);
  const first = idp.authenticate(token);
  const second = idp.authenticate(token);

  expect(second).toBe(first);
  expect(await first).toEqual({ ...accepted("gardener"), issuer: ISSUER });
  // A verdict, not a promise of one.
  expect(idp.check(token)).toBe(true);
  expect(verify).toHaveBeenCalledTimes(1);
});

test("a remembered token is refused once it expires", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, exp: NOW });
  expect(await idp.check(token)).toBe(true);
  idp.setTime(NOW + 29.999);
  expect(idp.check(token)).toBe(true);
  idp.setTime(NOW + 30);
  expect(await idp.check(token)).toBe("expired");
});

test("10,000 tokens are remembered; the oldest is evicted, and verified again when it returns", async () => {
  await using idp = await identityProvider();
  // Signing them takes seconds.
  using _ = spyOn(crypto.subtle, "verify").mockResolvedValue(true);
  const [first = "", second = "", ...others] = forgedTokens(idp.key, 10_001);
  const last = others.pop() ?? "";
  for (const token of [first, second]) expect(await idp.check(token)).toBe(true);

  for (let i = 0; i < others.length; i += 500) {
    expect(new Set(await Promise.all(others.slice(i, i + 500).map(idp.check)))).toEqual(
      new Set([true]),
    );
  }

  expect(idp.check(first)).toBe(true);
  expect(await idp.check(last)).toBe(true);
  expect(idp.check(second)).toBe(true);
  expect(idp.check(first)).toBeInstanceOf(Promise);
});

test("a remembered token is accepted beside 1,000 forged ones, and any other gets 503", async () => {
  await using idp = await identityProvider();
  const reasons: (string | undefined)[] = [];
  const observer = {
    onError: ({ reason }: PlantStoreError) => void reasons.push(reason),
    onResponse() {},
  };
  const app = testApp({ authenticate: idp.authenticate, observer });
  const post = (token: string) =>
    app.fetch(postPlant(fern(), { authorization: `Bearer ${token}` }));
  const token = await signed(idp.key, CLAIMS);
  const other = await signed(idp.key, { ...CLAIMS, jti: "other" });
  expect((await post(token)).status).toBe(200);

  const forged = forgedTokens(idp.key, 1_000).map(idp.check);
  const response = await post(other);
  expect(response.headers.get("retry-after")).toBe("1");

  const message = "too many JWTs wait to be verified; send the plant again later";
  expect(await readError(response)).toEqual({ status: 503, error: 5031, message });
  expect(reasons).toEqual(["too many JWTs wait to be verified"]);
  expect(idp.check(token)).toBe(true);
  expect(new Set(await Promise.all(forged))).toEqual(new Set(["bad signature"]));
  expect(idp.check(token)).toBe(true);
  expect((await post(other)).status).toBe(200);
});

test("one token at a time is verified for every two processors, in the order in which they came", async () => {
  await using idp = await identityProvider();
  const { verify } = crypto.subtle;
  let running = 0;
  let most = 0;
  const verified: string[] = [];

  using _ = spyOn(crypto.subtle, "verify").mockImplementation(async (...parameters) => {
    most = Math.max(most, ++running);
    verified.push(new TextDecoder().decode(parameters[3] as Uint8Array));
    return verify.apply(crypto.subtle, parameters).finally(() => running--);
  });

  const forged = forgedTokens(idp.key, 50);
  await Promise.all(forged.map(idp.check));
  expect(most).toBe(Math.max(1, Math.floor(navigator.hardwareConcurrency / 2)));
  expect(verified).toEqual(forged.map((token) => token.slice(0, token.lastIndexOf("."))));
});

// Algorithms

test.each([
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
])(
  "a token signed with %s is accepted, with and without `alg` in the published key",
  async (alg) => {
    await using idp = await identityProvider();
    const key = await signingKey(alg);
    const { alg: _, ...withoutAlg } = key.jwk;

    for (const [i, jwk] of [key.jwk, withoutAlg].entries()) {
      idp.provider.publish(jwk);
      expect(await idp.verdict(signed(key, { ...CLAIMS, jti: `${i}` }))).toBe(true);
      idp.advance(1 * HOURS);
    }
  },
);

test("only the algorithms that are asked for are accepted, and never one that is not safe", async () => {
  await using idp = await identityProvider({ algorithms: ["EdDSA"] });
  const key = await signingKey("EdDSA");

  idp.provider.publish(key, idp.key, { kty: "oct", k: "c2VjcmV0", kid: "shared", alg: "HS256" });
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
  expect(idp.check(await signed(idp.key, CLAIMS))).toBe("algorithm not accepted");

  for (const alg of ["HS256", "none"]) {
    expect(idp.check(unsigned({ alg, kid: "shared" }))).toBe("algorithm not accepted");
  }
});

// Signatures

test("a token whose header, claims or signature was changed after signing is refused", async () => {
  await using idp = await identityProvider();
  const [header, payload, signature = ""] = (
    await signed(idp.key, { ...CLAIMS, exp: NOW - 3_600 })
  ).split(".");
  const [, , other] = (await signed({ ...(await signingKey()), kid: idp.key.kid }, CLAIMS)).split(
    ".",
  );
  const longer = base64url.encode(JSON.stringify(CLAIMS));
  const retyped = base64url.encode(
    JSON.stringify({ alg: idp.key.alg, kid: idp.key.kid, typ: "JWT" }),
  );

  for (const bad of [other, signature.slice(4), `${signature}AAAA`, "A".repeat(86), ""]) {
    expect(await idp.check(`${header}.${payload}.${bad}`)).toBe("bad signature");
  }
  expect(await idp.check(`${header}.${payload}.A`)).toBe("malformed");
  expect(await idp.check(`${header}.${longer}.${signature}`)).toBe("bad signature");
  expect(await idp.check(`${retyped}.${payload}.${signature}`)).toBe("bad signature");
  expect(await idp.check(`${header}.${payload}.${signature}`)).toBe("expired");
});

test("a key that a token brings along is neither used nor fetched", async () => {
  await using idp = await identityProvider();
  const attacker = await signingKey();
  await using attackerProvider = jwksServer(attacker);
  const brought = {
    jwk: attacker.jwk,
    jku: attackerProvider.url.href,
    x5u: attackerProvider.url.href,
    x5c: ["MIIB"],
  };

  expect(await idp.verdict(signed(attacker, CLAIMS, { ...brought, kid: idp.key.kid }))).toBe(
    "bad signature",
  );
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(attacker, CLAIMS, brought))).toBe("unknown key");
  expect(await idp.verdict(signed(attacker, CLAIMS, { ...brought, kid: undefined }))).toBe(
    "bad signature",
  );
  expect(attackerProvider.requests()).toBe(0);
});

// Claims

test.each<[Record<string, unknown>, true | string]>([
  [{ iss: "https://id.example.net/" }, "wrong issuer"],
  [{ iss: "https://id.example.com" }, "wrong issuer"],
  [{ iss: [ISSUER] }, "wrong issuer"],
  [{ iss: undefined }, "wrong issuer"],
  [{ iss: null }, "wrong issuer"],
  [{ aud: ["tree-store", AUDIENCE] }, true],
  [{ aud: [AUDIENCE] }, true],
  [{ aud: "tree-store" }, "wrong audience"],
  [{ aud: "my plant-store" }, "wrong audience"],
  [{ aud: [] }, "wrong audience"],
  [{ aud: undefined }, "wrong audience"],
  [{ aud: { "plant-store": true } }, "wrong audience"],
  [{ exp: undefined }, "no expiry"],
  [{ exp: null }, "malformed"],
  [{ exp: String(NOW + 3_600) }, "malformed"],
  [{ exp: NOW - 29 }, true],
  [{ exp: NOW - 30 }, "expired"],
  [{ nbf: NOW + 30 }, true],
  [{ nbf: NOW + 31 }, "not yet valid"],
  [{ nbf: String(NOW) }, "malformed"],
  [{ iat: 0 }, true],
  [{ iat: NOW + 86_400 }, true],
  [{ iat: String(NOW) }, "malformed"],
])("a token with the claims %p is judged %p", async (claims, verdict) => {
  await using idp = await identityProvider();
  const token = await signedText(idp.key, JSON.stringify({ ...CLAIMS, ...claims }));
  // The text after the colon says what was expected, and what it got.
  expect(String(await idp.check(token)).split(":", 1)).toEqual([String(verdict)]);
});

test.each<[Record<string, unknown>, string]>([
  [{ iss: "https://id.example.com" }, `issuer: expected "${ISSUER}", got "https://id.example.com"`],
  [{ iss: undefined }, `issuer: expected "${ISSUER}", got none`],
  [{ aud: "account" }, 'audience: expected "plant-store", got "account"'],
  [{ aud: ["a", "b"] }, 'audience: expected "plant-store", got ["a","b"]'],
  [{ aud: undefined }, 'audience: expected "plant-store", got none'],
  [{ aud: "\u001b[31m\n\u202e" }, 'audience: expected "plant-store", got "\\u001b[31m\\n?"'],
  [{ aud: "x".repeat(500) }, `audience: expected "plant-store", got "${"x".repeat(199)}…`],
])(
  "the reason for the claims %j names what it got, in few plain characters",
  async (claims, says) => {
    await using idp = await identityProvider();
    expect(await idp.verdict(signed(idp.key, { ...CLAIMS, ...claims }))).toBe(`wrong ${says}`);
  },
);

test("a wrong claim of a token that nobody signed is not quoted", async () => {
  await using idp = await identityProvider();
  const claims = base64url.encode(JSON.stringify({ ...CLAIMS, iss: "https://id.example.net/" }));
  const [header = ""] = unsigned({ alg: idp.key.alg, kid: idp.key.kid }).split(".");
  expect(await idp.check(`${header}.${claims}.AAAA`)).toBe("bad signature");
});

test.each<[Record<string, unknown>, string]>([
  [{ typ: "ID" }, "an ID token"],
  [{ token_use: "id" }, "an ID token"],
  [{ at_hash: "IUJ9RqQpQpyulgRatzJXdA" }, "an ID token"],
  [{ c_hash: "IUJ9RqQpQpyulgRatzJXdA" }, "an ID token"],
  [{ typ: "Refresh" }, "a refresh token"],
  [{ token_type: "refresh" }, "a refresh token"],
  [{ typ: "Offline" }, "an offline token"],
  [{ typ: "Logout" }, "a logout token"],
])("a token that is not for an API is refused: one with the claims %j", async (claims, what) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, ...claims }))).toBe(
    `${what}, not an access token`,
  );
});

test.each<Record<string, unknown>>([
  { typ: "Bearer" },
  { typ: "constructor", token_type: {} },
  { token_use: "access" },
  { nonce: "n", azp: "app", auth_time: NOW },
])("an access token is no ID token: one with the claims %j", async (claims) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, ...claims }))).toBe(true);
});

// Subjects

const LISTED = ["gardener", "repo:garden/plants:*", "spiffe://garden/store"];

test.each<[unknown, boolean]>([
  ["gardener", true],
  ["gardener2", false],
  ["Gardener", false],
  ["gardene", false],
  ["repo:garden/plants:ref:refs/heads/main", true],
  ["repo:garden/plants:", true],
  ["repo:garden/plants", false],
  ["repo:garden/plants-of-strangers:ref:refs/heads/main", false],
  ["spiffe://garden/store", true],
  ["spiffe://garden/store/other", false],
  ["spiffe://garden/store*", false],
  ["", false],
  [undefined, false],
  [["gardener"], false],
  [1, false],
])("of the subjects %p, listed: %p", async (sub, isListed) => {
  await using idp = await identityProvider({ subjects: LISTED, scope: "write" });
  const claims = { ...CLAIMS, sub, scope: "write" } as JWTPayload;
  const token = await signedText(idp.key, JSON.stringify(claims));
  const subject = typeof sub === "string" ? sub : "";
  const lacks = { what: "a listed subject" };
  expect(await idp.authenticate(token)).toEqual({
    ...accepted(subject, isListed ? SCOPES : []),
    issuer: ISSUER,
    ...(!isListed && { lacks }),
  });
});

test("a listed subject needs the scope too", async () => {
  await using idp = await identityProvider({ subjects: LISTED, scope: "write" });
  expect(await idp.authenticate(await signed(idp.key, CLAIMS))).toMatchObject({
    lacks: { what: 'the required scope "write"', scope: "write" },
  });
});

test.each(["null", "[]", '"text"', "{not json", "1"])(
  "a signed payload %p is malformed",
  async (payload) => {
    await using idp = await identityProvider();
    expect(await idp.verdict(signedText(idp.key, payload))).toBe("malformed");
  },
);

test.each([ReferenceError, TypeError])(
  "a bug is no reason to throw a token away: a clock that throws a %p",
  async (Bug) => {
    const bug = new Bug("a bug");
    await using idp = await identityProvider({
      now() {
        throw bug;
      },
    });
    const token = await signed(idp.key, CLAIMS);
    await expect((async () => idp.authenticate(token))()).rejects.toBe(bug);
  },
);

test("tokens expire by the system clock by default", async () => {
  await using idp = await identityProvider({ now: undefined } as unknown as JwtOptions);
  const now = Math.floor(Date.now() / 1_000);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, exp: now + 600 }))).toBe(true);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, exp: now - 600 }))).toBe("expired");
});

// Header

test.each<Record<string, unknown>>([
  { typ: undefined },
  { typ: "JWT" },
  { typ: "jwt" },
  { typ: "application/jwt" },
  { typ: "AT+JWT" },
  { typ: "JOSE" },
  { typ: "application/at+jwt" },
  { jwk: { kty: "EC", x: "A" }, x5c: ["A", "B"] },
  { seven: [[[[[[[]]]]]]] },
])("a token with the header %p is accepted", async (header) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, CLAIMS, header))).toBe(true);
});

test.each<[Record<string, unknown>, string]>([
  ...headersWith(
    "alg",
    ["none", "None", "nOnE", "", undefined, null, 0, ["RS256"]],
    "algorithm not accepted",
  ),
  ...headersWith("alg", ["HS256", "HS384", "HS512", "ES256K", "dir"], "algorithm not accepted"),
  ...headersWith("typ", ["", null, 1, ["JWT"], "JWS", "text/jwt", "JWT\n"], "type not accepted"),
  ...headersWith("typ", ["dpop+jwt", "logout+jwt", "secevent+jwt"], "type not accepted"),
  ...headersWith("crit", [[], ["exp"], ["exp", 1], ["urn:x"], null], "malformed"),
  ...headersWith("kid", [1, null, ["a"], {}], "malformed"),
  ...headersWith("eight", [[[[[[[[[]]]]]]]]], "malformed"),
  // An unencoded payload (RFC 7797).
  [{ crit: ["b64"], b64: false }, "malformed"],
])("a token with the header %p is refused without a key: %s", async (header, reason) => {
  await using idp = await identityProvider();
  // A verdict, not a promise of one.
  expect(idp.check(unsigned({ alg: idp.key.alg, kid: idp.key.kid, ...header }))).toBe(reason);
  expect(idp.provider.requests()).toBe(0);
});

function headersWith(name: string, values: readonly unknown[], reason: string) {
  return values.map((value): [Record<string, unknown>, string] => [{ [name]: value }, reason]);
}

// Form

test.each([
  ["nothing", "", "not a signed JWT"],
  ["a minted token", "plant_0123456789abcdefghijABCDEFGHIJ01", "not a signed JWT"],
  ["one dot", "eyJhbGciOiJFUzI1NiJ9.e30", "not a signed JWT"],
  ["three dots", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA.", "not a signed JWT"],
  [
    "the five parts of encryption",
    "eyJhbGciOiJkaXIifQ..AAAA.AAAA.AAAA",
    "an encrypted JWT, not a signed one",
  ],
  ["dots alone", "..", "not a signed JWT"],
  ["no header", ".e30.AAAA", "not a signed JWT"],
  ["no payload", "eyJhbGciOiJFUzI1NiJ9..AAAA", "not a signed JWT"],
  ["padding", "eyJhbGciOiJFUzI1NiJ9.e30=.AAAA", "not a signed JWT"],
  ["the other base64 alphabet", "eyJhbGciOiJFUzI1NiJ9.e30.A+/A", "not a signed JWT"],
  ["a space", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA ", "not a signed JWT"],
  ["a line break", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA\n", "not a signed JWT"],
  ["14,336 characters", "e".repeat(14_336), "not a signed JWT"],
  ["14,337 characters", "e".repeat(14_337), "too long"],
  ...["AAAA", "e30x", "bnVsbA", "W10", "eyJhbGciOiJFUzI1NiI", "_____w", "A"].map(
    (header) => [`the header ${header}`, `${header}.e30.AAAA`, "malformed"] as const,
  ),
])("a token of %s is refused without a key", async (_, token, reason) => {
  await using idp = await identityProvider();
  expect(idp.check(token)).toBe(reason);
  expect(idp.provider.requests()).toBe(0);
});

test("any text sent as a token is refused, and nothing is thrown", async () => {
  await using idp = await identityProvider();
  const json = fc.jsonValue().map((value) => base64url.encode(JSON.stringify(value)));
  const header = fc
    .dictionary(
      fc.constantFrom("alg", "kid", "typ", "crit", "b64", "jwk", "zip", "__proto__"),
      fc.anything(),
    )
    .map((members) => base64url.encode(JSON.stringify({ alg: idp.key.alg, ...members }) ?? ""));
  const compact = fc
    .tuple(fc.oneof(json, header), json, fc.base64String())
    .map((parts) => parts.join("."));

  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.string(), compact), async (token) => {
      expect(await idp.check(token)).toBeString();
    }),
    { numRuns: 200 },
  );
});

/** Signs whatever text is said to be the claims. */
function signedText(key: SigningKey, payload: string): Promise<string> {
  return new CompactSign(UTF8.encode(payload))
    .setProtectedHeader({ alg: key.alg, kid: key.kid })
    .sign(key.privateKey);
}

/** Tokens that say they are signed with this key, and are not. */
function forgedTokens({ alg, kid }: SigningKey, count: number): string[] {
  return Array.from({ length: count }, (_, i) => unsigned({ alg, kid, i }));
}
