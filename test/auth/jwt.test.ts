import { expect, setDefaultTimeout, test } from "bun:test";
import * as fc from "fast-check";
import { base64url, CompactSign, exportSPKI, FlattenedSign, type JWTPayload, jwtVerify, SignJWT } from "jose";
import { accepted, ACCEPTED, type Scope, SCOPES } from "../../src/auth/authenticate.ts";
import type { JwtOptions } from "../../src/auth/jwt.ts";
import type { JwtAlgorithm } from "../../src/auth/jwt_header.ts";
import { postPlant, testApp } from "../support/app.ts";
import {
  AUDIENCE,
  CLAIMS,
  HOURS,
  identityProvider,
  ISSUER,
  jwksServer,
  MINUTES,
  NOW,
  SECONDS,
  signed,
  type SigningKey,
  signingKey,
  UTF8,
} from "../support/jwks.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { readError } from "../support/responses.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Through the app

test("POST /plants takes a JWT of the identity provider as credentials", async () => {
  await using idp = await identityProvider();
  const app = testApp({ authenticate: idp.authenticate });
  const authorization = `Bearer ${await signed(idp.key, CLAIMS)}`;
  const response = await app.fetch(postPlant({ id: 1, name: "Fern" }, { authorization }));
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual({ name: "Fern" });
});

test("POST /plants answers 401 to a JWT of another audience, and tells nothing of why", async () => {
  await using idp = await identityProvider();
  const app = testApp({ authenticate: idp.authenticate });
  const authorization = `Bearer ${await signed(idp.key, { ...CLAIMS, aud: "tree-store" })}`;
  const response = await app.fetch(postPlant({ id: 1, name: "Fern" }, { authorization }));
  expect(response.headers.get("www-authenticate")).toBe('Bearer realm="plant-store", error="invalid_token"');
  expect(await readError(response)).toEqual({
    status: 401,
    error: 4012,
    message: "the credentials are not a valid bearer token",
  });
});

// Scopes

test.each<[unknown, readonly Scope[]]>([
  ["plants:write", SCOPES],
  ["openid plants:write profile", SCOPES],
  [undefined, []],
  ["", []],
  ["plants", []],
  ["plants:write:all", []],
  ["Plants:Write", []],
  [["plants:write"], []],
  [{ "plants:write": true }, []],
])("a token with the `scope` %p may do %p where `plants:write` is asked for", async (scope, scopes) => {
  await using idp = await identityProvider({ scope: "plants:write" });
  const token = await signed(idp.key, { ...CLAIMS, scope });
  expect(await idp.authenticate(token)).toEqual(accepted(scopes));
  expect(idp.authenticate(token)).toEqual(accepted(scopes));
});

test("a token may do everything where no scope is asked for", async () => {
  await using idp = await identityProvider();
  for (const scope of [undefined, "", "openid"]) {
    expect(await idp.authenticate(await signed(idp.key, { ...CLAIMS, scope }))).toEqual(ACCEPTED);
  }
});

// Remembered tokens

test("a token that was accepted is accepted again without being verified", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  const first = idp.check(token);
  expect(first).toBeInstanceOf(Promise);
  expect(await first).toBe(true);
  // A verdict, not a promise of one.
  expect(idp.check(token)).toBe(true);
  expect(idp.provider.requests()).toBe(1);
});

test("a token that comes many times at once is verified once", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  const [first, second] = [idp.authenticate(token), idp.authenticate(token)];
  expect(second).toBe(first);
  expect(await first).toEqual(ACCEPTED);
});

test("a remembered token ends when it expires", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, exp: NOW });
  expect(await idp.verdict(token)).toBe(true);
  idp.setTime(NOW + 29.999);
  expect(idp.check(token)).toBe(true);
  idp.setTime(NOW + 30);
  expect(await idp.check(token)).toBe("expired");
});

test("a token that was refused is judged anew: nothing of it is remembered", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, nbf: NOW + 60 });
  expect(await idp.verdict(token)).toBe("not yet valid");
  idp.setTime(NOW + 60);
  expect(await idp.verdict(token)).toBe(true);
});

test("10,000 tokens are remembered: the one accepted first makes room for another, and is verified again", async () => {
  await using idp = await identityProvider();
  const first = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(first)).toBe(true);
  // An ES256 signature has 512 bits: of its last character's six, two are its own, and the other four make new tokens.
  const variants = (token: string) =>
    Array.from({ length: 16 }, (_, i) => token.slice(0, -1) + lastCharacter(token, i));
  const others: string[] = [];
  for (let i = 0; others.length < 9_999; i++)
    others.push(...variants(await signed(idp.key, { ...CLAIMS, jti: `${i}` })));
  others.length = 9_999;
  for (let i = 0; i < others.length; i += 500) {
    const verdicts = await Promise.all(others.slice(i, i + 500).map((token) => idp.check(token)));
    expect([...new Set(verdicts)]).toEqual([true]);
  }
  expect(idp.check(first)).toBe(true);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, jti: "last" }))).toBe(true);
  expect(idp.check(others[0] ?? "")).toBe(true);
  const again = idp.check(first);
  expect(again).toBeInstanceOf(Promise);
  expect(await again).toBe(true);
});

test("forged tokens push no remembered token out, and it does not wait for them", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  const forged = await forgedTokens(idp.key, 900);
  const verdicts = forged.map((forged) => idp.check(forged));
  expect(idp.check(token)).toBe(true);
  expect([...new Set(await Promise.all(verdicts))]).toEqual(["bad signature"]);
  expect(idp.check(token)).toBe(true);
});

test("POST /plants answers 503 when 1,000 tokens wait to be verified, and 200 to a remembered one", async () => {
  await using idp = await identityProvider();
  const app = testApp({ authenticate: idp.authenticate });
  const post = (id: number, token: string) =>
    app.fetch(postPlant({ id, name: "Fern" }, { authorization: `Bearer ${token}` }));
  const [token, other] = [await signed(idp.key, CLAIMS), await signed(idp.key, { ...CLAIMS, jti: "other" })];
  expect((await post(1, token)).status).toBe(200);
  // While the provider is asked for a key that it does not have, everybody who needs that key waits.
  idp.advance(10 * SECONDS);
  const { asked, release } = idp.provider.hold();
  const unknown = await signingKey();
  const waiting = (await forgedTokens(unknown, 1_000)).map((forged, i) => post(i, forged));
  await asked;
  const refused = await post(2, other);
  expect(refused.headers.get("retry-after")).toBe("1");
  expect(await readError(refused)).toEqual({
    status: 503,
    error: 5031,
    message: "too many JWTs wait to be verified; send the plant again later",
  });
  expect((await post(2, token)).status).toBe(200);
  release();
  expect(new Set((await Promise.all(waiting)).map(({ status }) => status))).toEqual(new Set([401]));
  expect((await post(3, other)).status).toBe(200);
});

// Algorithms

test.each(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"])(
  "a token signed with %s is accepted, with and without `alg` in the published key",
  async (alg) => {
    await using idp = await identityProvider();
    const key = await signingKey(alg);
    const { alg: _, ...withoutAlg } = key.jwk;
    for (const jwk of [key.jwk, withoutAlg]) {
      idp.provider.publish(jwk);
      expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
      idp.advance(1 * HOURS);
    }
  },
);

test.each(["none", "None", "NONE", "nOnE", "", undefined, null, 0, [["RS256"]], "HS1", "ES256K", "ML-DSA-44", "dir"])(
  "a token with `alg` %p is refused without a key, signed or not",
  async (alg) => {
    await using idp = await identityProvider();
    const [, payload, signature] = (await signed(idp.key, CLAIMS)).split(".");
    const header = base64url.encode(JSON.stringify({ alg, kid: idp.key.kid, typ: "JWT" }));
    // A verdict, not a promise of one.
    expect(idp.check(`${header}.${payload}.`)).toBe("algorithm not accepted");
    expect(idp.check(`${header}.${payload}.${signature}`)).toBe("algorithm not accepted");
    expect(idp.provider.requests()).toBe(0);
  },
);

test("only the algorithms that are asked for are accepted, and never one that is not safe", async () => {
  const algorithms = ["EdDSA", "HS256", "none"] as unknown as JwtAlgorithm[];
  await using idp = await identityProvider({ algorithms });
  const [key, secret] = [await signingKey("EdDSA"), new Uint8Array(32)];
  idp.provider.publish(key, idp.key, { kty: "oct", k: base64url.encode(secret), kid: "shared", alg: "HS256" });
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
  expect(idp.check(await signed(idp.key, CLAIMS))).toBe("algorithm not accepted");
  const shared = await new SignJWT(CLAIMS).setProtectedHeader({ alg: "HS256", kid: "shared" }).sign(secret);
  expect(idp.check(shared)).toBe("algorithm not accepted");
  const none = base64url.encode(JSON.stringify({ alg: "none" }));
  expect(idp.check(`${none}.${base64url.encode(JSON.stringify(CLAIMS))}.`)).toBe("algorithm not accepted");
});

test("a token signed with HMAC by the public key as the secret is refused", async () => {
  await using idp = await identityProvider();
  const { jwk, publicKey, kid } = await signingKey("RS256");
  idp.provider.publish(jwk);
  const pem = await exportSPKI(publicKey);
  const secrets = [pem, pem.trim(), JSON.stringify(jwk), JSON.stringify({ keys: [jwk] }), String(jwk.n)];
  for (const secret of secrets.map((text) => UTF8.encode(text))) {
    for (const alg of ["HS256", "HS384", "HS512"]) {
      const token = await new SignJWT(CLAIMS).setProtectedHeader({ alg, kid }).sign(secret);
      // The attack is real: whoever took the public key for a secret would let it in.
      await jwtVerify(token, secret, { currentDate: new Date(NOW * 1_000) });
      expect(await idp.verdict(token)).toBe("algorithm not accepted");
    }
  }
});

test("a symmetric key among those published makes no HS256 token good", async () => {
  await using idp = await identityProvider();
  const secret = crypto.getRandomValues(new Uint8Array(32));
  idp.provider.publish({ kty: "oct", k: base64url.encode(secret), kid: "shared", alg: "HS256" }, idp.key);
  const token = new SignJWT(CLAIMS).setProtectedHeader({ alg: "HS256", kid: "shared" }).sign(secret);
  expect(await idp.verdict(token)).toBe("algorithm not accepted");
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a key signs by the algorithm it was published for only", async () => {
  await using idp = await identityProvider();
  const key = await signingKey("RS256");
  idp.provider.publish(key);
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed({ ...(await signingKey("PS256")), kid: key.kid }, CLAIMS))).toBe("unknown key");
});

// Signatures

test("a token whose signature was cut, lengthened, exchanged or made by another key is refused", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  const [header, payload, signature = ""] = token.split(".");
  const [, , other = ""] = (await signed({ ...(await signingKey()), kid: idp.key.kid }, CLAIMS)).split(".");
  expect(await idp.verdict(token)).toBe(true);
  for (const bad of [other, signature.slice(4), `${signature}AAAA`, "A".repeat(86), ""])
    expect(await idp.verdict(`${header}.${payload}.${bad}`)).toBe("bad signature");
  expect(await idp.verdict(`${header}.${payload}.A`)).toBe("malformed");
});

test("a token whose claims were changed after signing is refused", async () => {
  await using idp = await identityProvider();
  const [header, , signature] = (await signed(idp.key, { ...CLAIMS, exp: NOW - 3_600 })).split(".");
  const longer = base64url.encode(JSON.stringify(CLAIMS));
  expect(await idp.verdict(`${header}.${longer}.${signature}`)).toBe("bad signature");
});

test("a token whose header was changed after signing is refused", async () => {
  await using idp = await identityProvider();
  const [, payload, signature] = (await signed(idp.key, CLAIMS, { typ: "logout+jwt" })).split(".");
  const header = base64url.encode(JSON.stringify({ alg: idp.key.alg, kid: idp.key.kid, typ: "JWT" }));
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("bad signature");
});

test("a key that a token brings along is neither used nor fetched", async () => {
  await using idp = await identityProvider();
  const attacker = await signingKey();
  await using attackerProvider = jwksServer(attacker);
  const brought = { jwk: attacker.jwk, jku: attackerProvider.url.href, x5u: attackerProvider.url.href, x5c: ["MIIB"] };
  expect(await idp.verdict(signed(attacker, CLAIMS, { ...brought, kid: idp.key.kid }))).toBe("bad signature");
  expect(await idp.verdict(signed(attacker, CLAIMS, brought))).toBe("unknown key");
  expect(await idp.verdict(signed(attacker, CLAIMS, { ...brought, kid: undefined }))).toBe("bad signature");
  expect(attackerProvider.requests()).toBe(0);
});

test("one character changed anywhere makes a token bad", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  // The last character has bits that no byte takes: another one may be the same signature.
  const places = fc.integer({ min: 0, max: token.length - 2 });
  const characters = fc.constantFrom(..."ABCXYZabcxyz0189-_.=+");
  await fc.assert(
    fc.asyncProperty(places, characters, async (place, character) => {
      fc.pre(token[place] !== character);
      expect(await idp.check(token.slice(0, place) + character + token.slice(place + 1))).not.toBe(true);
    }),
    { numRuns: 200 },
  );
});

// Claims

test.each<[string, unknown, true | string]>([
  ["of another issuer", "https://id.example.net/", "wrong issuer"],
  ["of an issuer with one slash less", "https://id.example.com", "wrong issuer"],
  ["of an issuer in other case", "https://ID.example.com/", "wrong issuer"],
  ["of an issuer that begins like ours", `${ISSUER}evil`, "wrong issuer"],
  ["of a list of issuers with ours", [ISSUER], "wrong issuer"],
  ["of no issuer", undefined, "wrong issuer"],
  ["of the issuer null", null, "wrong issuer"],
])("a token %s is refused", async (_, iss, reason) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, iss } as JWTPayload))).toBe(reason);
});

test.each<[string, unknown, true | string]>([
  ["for two audiences, one of them this service,", ["tree-store", AUDIENCE], true],
  ["for a list of this service alone", [AUDIENCE], true],
  ["for another audience", "tree-store", "wrong audience"],
  ["for two other audiences", ["tree-store", "plant-store-2"], "wrong audience"],
  ["for an audience that holds our name", "my plant-store", "wrong audience"],
  ["for an audience in other case", "Plant-Store", "wrong audience"],
  ["for an empty list", [], "wrong audience"],
  ["for a list in a list", [[AUDIENCE]], "wrong audience"],
  ["for no audience", undefined, "wrong audience"],
  ["for an object", { "plant-store": true }, "wrong audience"],
])("a token %s is judged so", async (_, aud, verdict) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, aud } as JWTPayload))).toBe(verdict);
});

test("a token counts until 30 seconds after `exp`, for the clocks' sake, and not a second longer", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, exp: NOW });
  for (const [seconds, verdict] of [
    [-1, true],
    [0, true],
    [29.999, true],
    [30, "expired"],
    [3_600, "expired"],
  ] as const) {
    idp.setTime(NOW + seconds);
    expect(await idp.verdict(token)).toBe(verdict);
  }
});

test("a token counts from 30 seconds before `nbf`, for the clocks' sake, and not a second sooner", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, nbf: NOW });
  for (const [seconds, verdict] of [
    [-3_600, "not yet valid"],
    [-31, "not yet valid"],
    [-30, true],
    [0, true],
  ] as const) {
    idp.setTime(NOW + seconds);
    expect(await idp.verdict(token)).toBe(verdict);
  }
});

test("a token that was good ends while the server runs", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.setTime(CLAIMS.exp + 30);
  expect(await idp.verdict(token)).toBe("expired");
});

test("tokens end by the system's clock unless told otherwise", async () => {
  await using idp = await identityProvider({ clock: undefined } as unknown as JwtOptions);
  const now = Math.floor(Date.now() / 1_000);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, exp: now + 600 }))).toBe(true);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, exp: now - 600 }))).toBe("expired");
});

test.each<[string, Record<string, unknown>, string]>([
  ["no `exp`", { exp: undefined }, "no expiry"],
  ["`exp` null", { exp: null }, "malformed"],
  ["`exp` as text", { exp: String(NOW + 3_600) }, "malformed"],
  ["`nbf` as text", { nbf: String(NOW) }, "malformed"],
  ["`iat` as text", { iat: String(NOW) }, "malformed"],
])("a token with %s is refused", async (_, claims, reason) => {
  await using idp = await identityProvider();
  const payload = JSON.stringify({ ...CLAIMS, ...claims });
  expect(await idp.verdict(signedText(idp.key, payload))).toBe(reason);
});

test("`iat` does not matter: a token may be older, or newer, than any clock", async () => {
  await using idp = await identityProvider();
  for (const iat of [0, NOW + 86_400]) expect(await idp.verdict(signed(idp.key, { ...CLAIMS, iat }))).toBe(true);
});

test.each(["", "null", "[]", '"text"', "{not json", "1"])("a signed payload %p is no claims set", async (payload) => {
  await using idp = await identityProvider();
  const reason = payload === "" ? "not a JWT" : "malformed";
  expect(await idp.verdict(signedText(idp.key, payload))).toBe(reason);
});

// Header

test.each<[unknown, true | string]>([
  [undefined, true],
  ["JWT", true],
  ["jwt", true],
  ["application/jwt", true],
  ["at+jwt", true],
  ["AT+JWT", true],
  ["application/at+jwt", true],
  ["", "type not accepted"],
  [null, "type not accepted"],
  [1, "type not accepted"],
  [["JWT"], "type not accepted"],
  ["JWS", "type not accepted"],
  ["JOSE", "type not accepted"],
  ["dpop+jwt", "type not accepted"],
  ["logout+jwt", "type not accepted"],
  ["secevent+jwt", "type not accepted"],
  ["text/jwt", "type not accepted"],
  ["JWT\n", "type not accepted"],
])("a token of `typ` %p is judged so", async (typ, verdict) => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, CLAIMS, { typ }))).toBe(verdict);
});

test("a token with a critical extension that nobody here knows is refused", async () => {
  await using idp = await identityProvider();
  const token = await new CompactSign(UTF8.encode(JSON.stringify(CLAIMS)))
    .setProtectedHeader({ alg: idp.key.alg, kid: idp.key.kid, crit: ["urn:x"], "urn:x": 1 })
    .sign(idp.key.privateKey, { crit: { "urn:x": true } });
  expect(await idp.verdict(token)).toBe("malformed");
  expect(idp.provider.requests()).toBe(0);
});

test.each([[[]], ["exp"], [["exp", 1]], [null]])("a token with `crit` %p is refused", async (crit) => {
  await using idp = await identityProvider();
  const [, payload, signature] = (await signed(idp.key, CLAIMS)).split(".");
  const header = base64url.encode(JSON.stringify({ alg: idp.key.alg, kid: idp.key.kid, crit }));
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("malformed");
});

test.each<[header: string, verdict: "malformed" | true]>([
  ['{"jwk":{"kty":"EC","x":"A"},"x5c":["A","B"]}', true],
  ['{"a":[[[[[[[]]]]]]]}', true],
  ['{"a":[[[[[[[[]]]]]]]]}', "malformed"],
  [`{"a":[${Array(400).fill('{"999":0}').join()}]}`, "malformed"],
])("a token with many arrays and objects in its header is refused: case %#", async (header, verdict) => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS, JSON.parse(header) as Record<string, unknown>);
  expect(await idp.verdict(token)).toBe(verdict);
});

test("a token with an unencoded payload (RFC 7797) is refused", async () => {
  await using idp = await identityProvider();
  const payload = base64url.encode(JSON.stringify(CLAIMS));
  const { protected: header, signature } = await new FlattenedSign(UTF8.encode(payload))
    .setProtectedHeader({ alg: idp.key.alg, kid: idp.key.kid, crit: ["b64"], b64: false })
    .sign(idp.key.privateKey);
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("malformed");
});

test.each([1, null, [["a"]], {}])("a token with `kid` %p is refused without a key", async (kid) => {
  await using idp = await identityProvider();
  expect(idp.check(await signed(idp.key, CLAIMS, { kid }))).toBe("malformed");
  expect(idp.provider.requests()).toBe(0);
});

test("a token without `kid` is accepted while one key alone fits, and refused when several do", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS, { kid: undefined });
  idp.provider.publish(idp.key, await signingKey("EdDSA"));
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(idp.key, await signingKey());
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(token)).toBe("ambiguous key");
});

// Form

test.each([
  ["nothing", ""],
  ["a minted token", "plant_0123456789abcdefghijABCDEFGHIJ01"],
  ["one dot", "eyJhbGciOiJFUzI1NiJ9.e30"],
  ["three dots", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA."],
  ["the five parts of encryption", "eyJhbGciOiJkaXIifQ..AAAA.AAAA.AAAA"],
  ["dots alone", ".."],
  ["no header", ".e30.AAAA"],
  ["no payload", "eyJhbGciOiJFUzI1NiJ9..AAAA"],
  ["padding", "eyJhbGciOiJFUzI1NiJ9.e30=.AAAA"],
  ["the other base64 alphabet", "eyJhbGciOiJFUzI1NiJ9.e30.A+/A"],
  ["a space", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA "],
  ["a line break", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA\n"],
])("a token of %s is refused without a key", async (_, token) => {
  await using idp = await identityProvider();
  expect(idp.check(token)).toBe("not a JWT");
  expect(idp.provider.requests()).toBe(0);
});

test.each(["AAAA", "e30x", "bnVsbA", "W10", "eyJhbGciOiJFUzI1NiI", "_____w", "A"])(
  "a token with the header %s is refused without a key",
  async (header) => {
    await using idp = await identityProvider();
    expect(idp.check(`${header}.e30.AAAA`)).toBe("malformed");
    expect(idp.provider.requests()).toBe(0);
  },
);

test("a token may have 8,192 characters, and is refused without a key when it has more", async () => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signedToLength(idp.key, 8_192))).toBe(true);
  expect(idp.check(await signedToLength(idp.key, 8_193))).toBe("too long");
});

test("whatever is sent as a token is refused, and nothing is thrown", async () => {
  await using idp = await identityProvider();
  const json = fc.jsonValue().map((value) => base64url.encode(JSON.stringify(value)));
  const header = fc
    .dictionary(fc.constantFrom("alg", "kid", "typ", "crit", "b64", "jwk", "zip", "__proto__"), fc.anything())
    .map((members) => base64url.encode(JSON.stringify({ alg: idp.key.alg, ...members }) ?? ""));
  const compact = fc.tuple(fc.oneof(json, header), json, fc.base64String()).map((parts) => parts.join("."));
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.string(), compact), async (token) => {
      expect(await idp.check(token)).toBeString();
    }),
    { numRuns: 200 },
  );
});

/** A good token of exactly this many characters. Base64 has lengths that do not occur: the header makes up for them. */
async function signedToLength(key: SigningKey, length: number): Promise<string> {
  const padded = (pad: string, filler: number) => signed(key, { ...CLAIMS, filler: "f".repeat(filler) }, { pad });
  for (const pad of ["", "p", "pp", "ppp"]) {
    let filler = Math.floor(((length - (await padded(pad, 0)).length) * 3) / 4) - 2;
    let token = "";
    while (token.length < length) token = await padded(pad, filler++);
    if (token.length === length) return token;
  }
  throw new Error(`No token has ${length} characters`);
}

/** Signs whatever text is said to be the claims. */
function signedText(key: SigningKey, payload: string): Promise<string> {
  return new CompactSign(UTF8.encode(payload)).setProtectedHeader({ alg: key.alg, kid: key.kid }).sign(key.privateKey);
}

/** Tokens that say they are signed with this key, and are not. */
async function forgedTokens(key: SigningKey, count: number): Promise<string[]> {
  const [header, , signature] = (await signed(key, CLAIMS)).split(".");
  return Array.from({ length: count }, (_, i) => {
    const payload = base64url.encode(JSON.stringify({ ...CLAIMS, jti: `forged ${i}` }));
    return `${header}.${payload}.${signature}`;
  });
}

const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** A token's last character with its four lowest bits, which are none of the signature's, replaced. */
function lastCharacter(token: string, low: number): string {
  const value = BASE64URL.indexOf(token.at(-1) ?? "");
  return BASE64URL[(value & 0b110000) | low] ?? "";
}
