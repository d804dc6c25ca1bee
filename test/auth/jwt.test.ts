import { expect, test } from "bun:test";
import * as fc from "fast-check";
import {
  base64url,
  CompactSign,
  exportJWK,
  exportSPKI,
  FlattenedSign,
  type JWK,
  type JWTPayload,
  jwtVerify,
  SignJWT,
} from "jose";
import type { Verdict } from "../../src/auth/authenticate.ts";
import { jwtAuthenticator, type JwtOptions } from "../../src/auth/jwt.ts";
import { readError } from "../support/responses.ts";
import { postPlant, testApp } from "../support/app.ts";
import { type CannedResponse, jwksServer, signed, type SigningKey, signingKey } from "../support/jwks.ts";

const ISSUER = "https://id.example.com/";
const AUDIENCE = "plant-store";
/** Seconds since the epoch at which every test begins. */
const NOW = 2_000_000_000;
const CLAIMS = { iss: ISSUER, aud: AUDIENCE, sub: "gardener", exp: NOW + 3_600 };

const SECONDS = 1_000;
const MINUTES = 60 * SECONDS;
const HOURS = 60 * MINUTES;

const UTF8 = new TextEncoder();

function reasonOf(verdict: Verdict): true | string {
  return verdict.ok || verdict.reason;
}

/** A provider with one key, an authenticator that follows it, and the hands of both clocks. */
async function world(options: Partial<JwtOptions> = {}) {
  const key = await signingKey();
  const provider = jwksServer(key);
  const causes: unknown[] = [];
  let now = NOW;
  let elapsed = 0;
  const authenticate = jwtAuthenticator({
    jwksUrl: provider.url,
    issuer: ISSUER,
    audience: AUDIENCE,
    clock: () => new Date(now * 1_000),
    monotonic: () => elapsed,
    onKeysUnavailable: (cause) => causes.push(cause),
    ...options,
  });
  /** `true` for a token that is accepted, else why it is not; a promise only where there is one. */
  const check = (token: string) => {
    const verdict = authenticate(token);
    return verdict instanceof Promise ? verdict.then(reasonOf) : reasonOf(verdict);
  };
  return {
    key,
    provider,
    authenticate,
    check,
    causes,
    /** What becomes of a token: whether it is accepted, else why not. */
    verdict: async (token: string | Promise<string>) => check(await token),
    /** Sets the time of day, in seconds since the epoch. */
    at: (seconds: number) => {
      now = seconds;
    },
    /** Lets cached keys age. */
    pass: (milliseconds: number) => {
      elapsed += milliseconds;
    },
    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
}

// Through the app

test("POST /plants takes a JWT of the identity provider as credentials", async () => {
  await using idp = await world();
  const app = testApp({ authenticate: idp.authenticate });
  const authorization = `Bearer ${await signed(idp.key, CLAIMS)}`;
  const response = await app.fetch(postPlant({ id: 1, name: "Fern" }, { authorization }));
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual({ name: "Fern" });
});

test("POST /plants answers 401 to a JWT of another audience, and tells nothing of why", async () => {
  await using idp = await world();
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

// Algorithms

test.each(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"])(
  "a token signed with %s is accepted, with and without `alg` in the published key",
  async (alg) => {
    await using idp = await world();
    const key = await signingKey(alg);
    const { alg: _, ...withoutAlg } = key.jwk;
    for (const jwk of [key.jwk, withoutAlg]) {
      idp.provider.publish(jwk);
      expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
      idp.pass(1 * HOURS);
    }
  },
);

test.each(["none", "None", "NONE", "nOnE", "", undefined, null, 0, [["RS256"]], "HS1", "ES256K", "ML-DSA-44", "dir"])(
  "a token with `alg` %p is refused at sight, signed or not",
  async (alg) => {
    await using idp = await world();
    const [, payload, signature] = (await signed(idp.key, CLAIMS)).split(".");
    const header = base64url.encode(JSON.stringify({ alg, kid: idp.key.kid, typ: "JWT" }));
    // A verdict, not a promise of one.
    expect(idp.check(`${header}.${payload}.`)).toBe("algorithm not accepted");
    expect(idp.check(`${header}.${payload}.${signature}`)).toBe("algorithm not accepted");
    expect(idp.provider.requests()).toBe(0);
  },
);

test("a token signed with HMAC by the public key as the secret is refused", async () => {
  await using idp = await world();
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
  await using idp = await world();
  const secret = crypto.getRandomValues(new Uint8Array(32));
  idp.provider.publish({ kty: "oct", k: base64url.encode(secret), kid: "shared", alg: "HS256" }, idp.key);
  const token = new SignJWT(CLAIMS).setProtectedHeader({ alg: "HS256", kid: "shared" }).sign(secret);
  expect(await idp.verdict(token)).toBe("algorithm not accepted");
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a key signs by the algorithm it was published for only", async () => {
  await using idp = await world();
  const key = await signingKey("RS256");
  idp.provider.publish(key);
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed({ ...(await signingKey("PS256")), kid: key.kid }, CLAIMS))).toBe("unknown key");
});

// Signatures

test("a token whose signature was cut, lengthened, exchanged or made by another key is refused", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  const [header, payload, signature = ""] = token.split(".");
  const [, , other = ""] = (await signed({ ...(await signingKey()), kid: idp.key.kid }, CLAIMS)).split(".");
  expect(await idp.verdict(token)).toBe(true);
  for (const bad of [other, signature.slice(4), `${signature}AAAA`, "A".repeat(86), ""])
    expect(await idp.verdict(`${header}.${payload}.${bad}`)).toBe("bad signature");
  expect(await idp.verdict(`${header}.${payload}.A`)).toBe("malformed");
});

test("a token whose claims were changed after signing is refused", async () => {
  await using idp = await world();
  const [header, , signature] = (await signed(idp.key, { ...CLAIMS, exp: NOW - 3_600 })).split(".");
  const longer = base64url.encode(JSON.stringify(CLAIMS));
  expect(await idp.verdict(`${header}.${longer}.${signature}`)).toBe("bad signature");
});

test("a token whose header was changed after signing is refused", async () => {
  await using idp = await world();
  const [, payload, signature] = (await signed(idp.key, CLAIMS, { typ: "logout+jwt" })).split(".");
  const header = base64url.encode(JSON.stringify({ alg: idp.key.alg, kid: idp.key.kid, typ: "JWT" }));
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("bad signature");
});

test("a key that a token brings along is neither used nor fetched", async () => {
  await using idp = await world();
  const thief = await signingKey();
  await using thiefs = jwksServer(thief);
  const brought = { jwk: thief.jwk, jku: thiefs.url.href, x5u: thiefs.url.href, x5c: ["MIIB"] };
  expect(await idp.verdict(signed(thief, CLAIMS, { ...brought, kid: idp.key.kid }))).toBe("bad signature");
  expect(await idp.verdict(signed(thief, CLAIMS, brought))).toBe("unknown key");
  expect(await idp.verdict(signed(thief, CLAIMS, { ...brought, kid: undefined }))).toBe("bad signature");
  expect(thiefs.requests()).toBe(0);
});

test("one character changed anywhere makes a token bad", async () => {
  await using idp = await world();
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
  await using idp = await world();
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
  await using idp = await world();
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, aud } as JWTPayload))).toBe(verdict);
});

test("a token counts until 30 seconds after `exp`, for the clocks' sake, and not a second longer", async () => {
  await using idp = await world();
  const token = await signed(idp.key, { ...CLAIMS, exp: NOW });
  for (const [seconds, verdict] of [
    [-1, true],
    [0, true],
    [29.999, true],
    [30, "expired"],
    [3_600, "expired"],
  ] as const) {
    idp.at(NOW + seconds);
    expect(await idp.verdict(token)).toBe(verdict);
  }
});

test("a token counts from 30 seconds before `nbf`, for the clocks' sake, and not a second sooner", async () => {
  await using idp = await world();
  const token = await signed(idp.key, { ...CLAIMS, nbf: NOW });
  for (const [seconds, verdict] of [
    [-3_600, "not yet valid"],
    [-31, "not yet valid"],
    [-30, true],
    [0, true],
  ] as const) {
    idp.at(NOW + seconds);
    expect(await idp.verdict(token)).toBe(verdict);
  }
});

test("a token that was good ends while the server runs", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.at(CLAIMS.exp + 30);
  expect(await idp.verdict(token)).toBe("expired");
});

test("tokens end by the system's clock unless told otherwise", async () => {
  await using idp = await world({ clock: undefined } as unknown as JwtOptions);
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
  await using idp = await world();
  const payload = JSON.stringify({ ...CLAIMS, ...claims });
  expect(await idp.verdict(signedText(idp.key, payload))).toBe(reason);
});

test("`iat` does not matter: a token may be older, or newer, than any clock", async () => {
  await using idp = await world();
  for (const iat of [0, NOW + 86_400]) expect(await idp.verdict(signed(idp.key, { ...CLAIMS, iat }))).toBe(true);
});

test.each(["", "null", "[]", '"text"', "{not json", "1"])("a signed payload %p is no claims set", async (payload) => {
  await using idp = await world();
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
  await using idp = await world();
  expect(await idp.verdict(signed(idp.key, CLAIMS, { typ }))).toBe(verdict);
});

test("a token with a critical extension that nobody here knows is refused", async () => {
  await using idp = await world();
  const token = await new CompactSign(UTF8.encode(JSON.stringify(CLAIMS)))
    .setProtectedHeader({ alg: idp.key.alg, kid: idp.key.kid, crit: ["urn:x"], "urn:x": 1 })
    .sign(idp.key.privateKey, { crit: { "urn:x": true } });
  expect(await idp.verdict(token)).toBe("malformed");
  expect(idp.provider.requests()).toBe(0);
});

test.each([[[]], ["exp"], [["exp", 1]], [null]])("a token with `crit` %p is refused", async (crit) => {
  await using idp = await world();
  const [, payload, signature] = (await signed(idp.key, CLAIMS)).split(".");
  const header = base64url.encode(JSON.stringify({ alg: idp.key.alg, kid: idp.key.kid, crit }));
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("malformed");
});

test("a token with an unencoded payload (RFC 7797) is refused", async () => {
  await using idp = await world();
  const payload = base64url.encode(JSON.stringify(CLAIMS));
  const { protected: header, signature } = await new FlattenedSign(UTF8.encode(payload))
    .setProtectedHeader({ alg: idp.key.alg, kid: idp.key.kid, crit: ["b64"], b64: false })
    .sign(idp.key.privateKey);
  expect(await idp.verdict(`${header}.${payload}.${signature}`)).toBe("malformed");
});

test.each([1, null, [["a"]], {}])("a token with `kid` %p is refused at sight", async (kid) => {
  await using idp = await world();
  expect(idp.check(await signed(idp.key, CLAIMS, { kid }))).toBe("malformed");
  expect(idp.provider.requests()).toBe(0);
});

test("a token without `kid` is accepted while one key alone fits, and refused when several do", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS, { kid: undefined });
  idp.provider.publish(idp.key, await signingKey("EdDSA"));
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(idp.key, await signingKey());
  idp.pass(10 * MINUTES);
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
])("a token of %s is refused at sight", async (_, token) => {
  await using idp = await world();
  expect(idp.check(token)).toBe("not a JWT");
  expect(idp.provider.requests()).toBe(0);
});

test.each(["AAAA", "e30x", "bnVsbA", "W10", "eyJhbGciOiJFUzI1NiI", "_____w", "A"])(
  "a token with the header %s is refused at sight",
  async (header) => {
    await using idp = await world();
    expect(idp.check(`${header}.e30.AAAA`)).toBe("malformed");
    expect(idp.provider.requests()).toBe(0);
  },
);

test("a token may have 8,192 characters, and is refused at sight when it has more", async () => {
  await using idp = await world();
  expect(await idp.verdict(signedToLength(idp.key, 8_192))).toBe(true);
  expect(idp.check(await signedToLength(idp.key, 8_193))).toBe("too long");
});

test("whatever is sent as a token is refused, and nothing is thrown", async () => {
  await using idp = await world();
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

// Keys

test("keys are fetched when the first token needs one, once for all that come together, and kept", async () => {
  await using idp = await world();
  expect(idp.provider.requests()).toBe(0);
  const token = await signed(idp.key, CLAIMS);
  expect(await Promise.all(Array.from({ length: 50 }, () => idp.check(token)))).toEqual(Array(50).fill(true));
  idp.pass(5 * MINUTES - 1);
  expect(await idp.verdict(token)).toBe(true);
  // Our own request would come after one in the background.
  await fetch(idp.provider.url);
  expect(idp.provider.requests()).toBe(2);
});

test("a new key counts with its first token, and the old one goes on", async () => {
  await using idp = await world();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(idp.key, next);
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  expect(idp.provider.requests()).toBe(2);
});

test("a withdrawn key ends when a new one brings the keys in anew", async () => {
  await using idp = await world();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(next);
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unknown key");
});

test("a withdrawn key ends 10 minutes after it was last confirmed, also when no token came meanwhile", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(await signingKey());
  idp.pass(10 * MINUTES);
  expect(await idp.verdict(token)).toBe("unknown key");
});

test("a provider that publishes no key at all has withdrawn them all", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish();
  idp.pass(10 * MINUTES);
  expect(await idp.verdict(token)).toBe("unknown key");
});

test("keys are confirmed after 5 minutes, while known ones go on and nobody waits", async () => {
  await using idp = await world({ timeoutMs: 600_000 });
  const next = await signingKey();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(next);
  idp.pass(5 * MINUTES);
  const { asked, release } = idp.provider.hold();
  expect(await idp.verdict(token)).toBe(true);
  await asked;
  // A token that needs the new key does wait, for the fetch that is under way.
  const waiting = idp.verdict(signed(next, CLAIMS));
  release();
  expect(await waiting).toBe(true);
  expect(await idp.verdict(token)).toBe("unknown key");
  expect(idp.provider.requests()).toBe(2);
});

test("keys age from when they were asked for, not from when they came", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  const { asked, release } = idp.provider.hold();
  const waiting = idp.verdict(token);
  await asked;
  idp.pass(10 * MINUTES);
  release();
  expect(await waiting).toBe(true);
  expect(await idp.verdict(token)).toBe(true);
  expect(idp.provider.requests()).toBe(2);
});

test("a fetch that takes longer than 10 seconds is still the only one", async () => {
  await using idp = await world({ timeoutMs: 60_000 });
  const token = await signed(idp.key, CLAIMS);
  const { asked, release } = idp.provider.hold();
  const first = idp.check(token);
  await asked;
  idp.pass(10 * SECONDS);
  const second = idp.check(token);
  release();
  expect(await Promise.all([first, second])).toEqual([true, true]);
  expect(idp.provider.requests()).toBe(1);
});

test("a key exchanged under its old id counts when the keys are confirmed", async () => {
  await using idp = await world();
  const next = await signingKey("ES256", idp.key.kid);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(next);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe("bad signature");
  idp.pass(10 * MINUTES);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("bad signature");
});

test("unknown key ids bring one fetch every 10 seconds, however many come", async () => {
  await using idp = await world();
  const thief = await signingKey();
  const flood = () =>
    Promise.all(
      Array.from({ length: 50 }, async () => idp.check(await signed(thief, CLAIMS, { kid: crypto.randomUUID() }))),
    );
  for (let round = 1; round <= 3; round++) {
    expect([...new Set(await flood())]).toEqual(["unknown key"]);
    idp.pass(10 * SECONDS - 1);
    await flood();
    expect(idp.provider.requests()).toBe(round);
    idp.pass(1);
  }
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a key published just after a fetch counts 10 seconds later", async () => {
  await using idp = await world();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(idp.key, next);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe("unknown key");
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
});

// Provider away

/** Every way of not publishing keys; `slow` ones end by the time-out. */
const FAILURES: readonly [string, CannedResponse, { readonly slow?: boolean }?][] = [
  ["answers 500", () => new Response("oops", { status: 500 })],
  ["answers 404", () => new Response(null, { status: 404 })],
  ["answers 206 with keys", () => Response.json({ keys: [] }, { status: 206 })],
  ["answers nothing", () => new Response("")],
  ["answers a page", () => new Response("<!doctype html><title>Maintenance</title>")],
  ["answers half a JWK Set", () => new Response('{"keys": [')],
  ["answers null", () => new Response("null")],
  ["answers a list", () => Response.json([{ kty: "EC" }])],
  ["answers an object without keys", () => Response.json({})],
  ["answers keys that are no objects", () => Response.json({ keys: [1, null, "key"] })],
  [
    "answers what is not UTF-8",
    () => new Response(Uint8Array.from('{"keys": [], "é": 0}', (text) => text.charCodeAt(0))),
  ],
  ["answers keys and half a character", () => new Response(new Uint8Array([...UTF8.encode('{"keys": []}'), 0xc3]))],
  ["answers more than 256 KiB", () => Response.json({ keys: [], more: "x".repeat(262_144) })],
  ["answers without an end", endless],
  ["answers a compressed flood", () => new Response(FLOOD, { headers: { "content-encoding": "gzip" } })],
  ["does not answer", () => new Promise<Response>(() => {}), { slow: true }],
  ["stops in the middle of its response", stalled, { slow: true }],
];

const FLOOD = Bun.gzipSync(new Uint8Array(5_000_000).fill(0x20));

function endless(): Response {
  return new Response(new ReadableStream({ pull: (stream) => stream.enqueue(new Uint8Array(16_384).fill(0x20)) }));
}

function stalled(): Response {
  return new Response(new ReadableStream({ start: (stream) => stream.enqueue(UTF8.encode('{"keys": [')) }));
}

function inPieces(bytes: Uint8Array): ReadableStream {
  let sent = 0;
  return new ReadableStream({
    async pull(stream) {
      if (sent >= bytes.length) return stream.close();
      // Pieces of one turn of the event loop would travel together.
      await Bun.sleep(1);
      stream.enqueue(bytes.subarray(sent, (sent += 7)));
    },
  });
}

/** Long enough for every good response, and short enough for a test. */
const timeout = (slow = false) => (slow ? { timeoutMs: 400 } : {});

test.each(FAILURES)(
  "when the provider %s at the start, tokens are refused until it is well, and it is asked every 10 seconds",
  async (_, failure, { slow } = {}) => {
    await using idp = await world(timeout(slow));
    const token = await signed(idp.key, CLAIMS);
    idp.provider.responses(failure);
    const verdicts = await Promise.all([idp.check(token), idp.check(token)]);
    expect(verdicts).toEqual(["keys unavailable", "keys unavailable"]);
    idp.provider.publish(idp.key);
    idp.pass(10 * SECONDS - 1);
    expect(await idp.verdict(token)).toBe("keys unavailable");
    expect([idp.provider.requests(), idp.causes.length]).toEqual([1, 1]);
    idp.pass(1);
    expect(await idp.verdict(token)).toBe(true);
  },
);

test.each(FAILURES)(
  "when the provider %s later, known keys go on and new ones are refused until it is well",
  async (_, failure, { slow } = {}) => {
    await using idp = await world(timeout(slow));
    const [next, token] = [await signingKey(), await signed(idp.key, CLAIMS)];
    expect(await idp.verdict(token)).toBe(true);
    idp.provider.responses(failure);
    idp.pass(15 * MINUTES);
    expect(await idp.verdict(token)).toBe(true);
    expect(await idp.verdict(signed(next, CLAIMS))).toBe("keys unavailable");
    expect([idp.provider.requests(), idp.causes.length]).toEqual([2, 1]);
    idp.provider.publish(next);
    idp.pass(10 * SECONDS);
    expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
    expect(await idp.verdict(token)).toBe("unknown key");
  },
);

test("a redirection is not followed, wherever it leads", async () => {
  await using idp = await world();
  await using elsewhere = jwksServer(idp.key);
  idp.provider.responses(() => Response.redirect(elsewhere.url.href));
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("keys unavailable");
  expect(elsewhere.requests()).toBe(0);
});

test("while nobody listens where the provider was, its keys go on for 24 hours and no longer", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  await idp.provider.leave();
  idp.pass(24 * HOURS - 1);
  expect(await idp.verdict(token)).toBe(true);
  idp.pass(1);
  expect(await idp.verdict(token)).toBe("keys unavailable");
  idp.provider.comeBack();
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(token)).toBe(true);
});

test("when nobody listens at the start, tokens are refused until the provider is there", async () => {
  await using idp = await world();
  const token = await signed(idp.key, CLAIMS);
  await idp.provider.leave();
  expect(await idp.verdict(token)).toBe("keys unavailable");
  expect(idp.causes).toEqual([expect.any(Error)]);
  idp.provider.comeBack();
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(token)).toBe(true);
});

test("once the provider is known to be away, known keys do not wait for it", async () => {
  await using idp = await world({ timeoutMs: 600_000 });
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.responses(() => new Response(null, { status: 503 }));
  idp.pass(1 * HOURS);
  expect(await idp.verdict(token)).toBe(true);
  idp.pass(1 * HOURS);
  const { release } = idp.provider.hold();
  expect(await idp.verdict(token)).toBe(true);
  release();
  // A token that needs a new key joins the same fetch, so it is over afterwards.
  expect(await idp.verdict(signed(await signingKey(), CLAIMS))).toBe("keys unavailable");
  expect(idp.provider.requests()).toBe(3);
});

test("a long outage is told every 10 seconds at most, with its cause", async () => {
  await using idp = await world();
  idp.provider.responses(() => new Response(null, { status: 503 }));
  const token = await signed(idp.key, CLAIMS);
  for (let i = 0; i < 10; i++) {
    expect(await idp.verdict(token)).toBe("keys unavailable");
    idp.pass(5 * SECONDS);
  }
  expect(idp.causes).toHaveLength(5);
  expect(idp.causes[0]).toMatchObject({ message: "The JWKS URL answered 503" });
});

// Keys that are no good

test("keys that come in pieces, cut anywhere, are put together", async () => {
  await using idp = await world();
  const key = await signingKey("ES256", "🌿🌿🌿🌿🌿");
  idp.provider.responses(() => new Response(inPieces(UTF8.encode(JSON.stringify({ keys: [key.jwk] })))));
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
});

test("a hundred keys with their certificates are no trouble", async () => {
  await using idp = await world();
  const many = Array.from({ length: 100 }, (_, i): JWK => ({
    ...idp.key.jwk,
    kid: `old-${i}`,
    x5c: ["M".repeat(2_000)],
  }));
  idp.provider.publish(...many, idp.key);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test.each<[string, JWK, string]>([
  ["of an unknown type", { kty: "XYZ" }, "unknown key"],
  ["without a type", {}, "unknown key"],
  ["of another curve", { crv: "P-384" }, "unknown key"],
  ["for encryption", { use: "enc" }, "unknown key"],
  ["for another algorithm", { alg: "ES384" }, "unknown key"],
  ["that must not verify", { key_ops: ["sign"] }, "unknown key"],
  ["without its coordinates", { x: undefined, y: undefined } as unknown as JWK, "unusable key"],
  ["with coordinates that are no text", { x: 1, y: [] } as unknown as JWK, "unusable key"],
  ["with a point off the curve", { x: "A".repeat(43), y: "A".repeat(43) }, "unusable key"],
])("a published key %s makes its own token bad, and no other", async (_, change, reason) => {
  await using idp = await world();
  const odd = await signingKey();
  const members =
    change.kty === undefined && Object.keys(change).length === 0 ? { kid: odd.kid } : { ...odd.jwk, ...change };
  idp.provider.publish(members as JWK, idp.key);
  expect(await idp.verdict(signed(odd, CLAIMS))).toBe(reason);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a private key that was published by mistake is not used", async () => {
  await using idp = await world();
  const { privateKey, kid, alg } = idp.key;
  idp.provider.publish({ ...(await exportJWK(privateKey)), kid, alg });
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unusable key");
  // Its id is known, so it is no reason to ask again.
  idp.pass(10 * SECONDS);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unusable key");
  expect(idp.provider.requests()).toBe(1);
});

test("an RSA key of fewer than 2,048 bits is not used", async () => {
  await using idp = await world();
  const algorithm = {
    name: "RSASSA-PKCS1-v1_5",
    modulusLength: 1_024,
    publicExponent: new Uint8Array([1, 0, 1]),
    hash: "SHA-256",
  };
  const { privateKey, publicKey } = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  idp.provider.publish({ ...(await exportJWK(publicKey)), kid: "short" });
  const input = `${base64url.encode('{"alg":"RS256","kid":"short"}')}.${base64url.encode(JSON.stringify(CLAIMS))}`;
  const signature = await crypto.subtle.sign(algorithm.name, privateKey, UTF8.encode(input));
  expect(await idp.verdict(`${input}.${base64url.encode(new Uint8Array(signature))}`)).toBe("unusable key");
});

test("an encryption key under the signing key's id is passed over", async () => {
  await using idp = await world();
  const encryption = await signingKey("ES256", idp.key.kid);
  idp.provider.publish({ ...encryption.jwk, alg: "ECDH-ES", use: "enc" }, idp.key);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
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
