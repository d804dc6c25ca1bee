import { expect, setDefaultTimeout, spyOn, test } from "bun:test";

import { base64url, exportJWK, type JWK } from "jose";

import {
  type CannedResponse,
  CLAIMS,
  HOURS,
  identityProvider,
  jwksServer,
  MINUTES,
  NOW,
  SECONDS,
  signed,
  type SigningKey,
  signingKey,
  unsigned,
  UTF8,
} from "../../support/jwt_provider.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { streamOf } from "../../support/stream.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

type IdentityProvider = Awaited<ReturnType<typeof identityProvider>>;

/**
 * A provider whose first key is "a", and its tokens: "b2" is the second one that key "b" signs,
 * always the same.
 */
async function world() {
  const idp = await identityProvider();
  const keys = new Map<string, SigningKey>([["a", idp.key]]);
  const tokens = new Map<string, string>();

  async function key(name: string): Promise<SigningKey> {
    const made = keys.get(name) ?? (await signingKey());
    keys.set(name, made);
    return made;
  }

  async function token(name: string): Promise<string> {
    const made =
      tokens.get(name) ??
      (await signed(await key(name.charAt(0)), { ...CLAIMS, jti: name, exp: FAR }));
    tokens.set(name, made);
    return made;
  }

  return Object.assign(idp, {
    ownRequests: 0,
    keys: (names: string) => Promise.all([...names].map(key)),
    token,
  });
}

/** Later than any test lets the clock go. */
const FAR = NOW + 10_000_000;

type World = Awaited<ReturnType<typeof world>>;
type Step = (idp: World) => unknown;

function step<Values extends unknown[]>(take: (idp: World, ...values: Values) => unknown) {
  return (...values: Values): Step =>
    (idp) =>
      take(idp, ...values);
}

const asks = step(async (idp, token: string, verdict: true | string) => {
  expect([token, await idp.check(await idp.token(token))]).toEqual([token, verdict]);
});
/** A verdict, and not a promise of one: nothing was verified, and no keys were waited for. */
const remembers = step(async (idp, token: string) => {
  expect([token, idp.check(await idp.token(token))]).toEqual([token, true]);
});
/** A verdict too, while a fetch begins in the background. */
const revalidates = step(async (idp, token: string) => {
  const { asked, release } = idp.provider.hold();
  await remembers(token)(idp);
  await asked;
  release();
});
const publishes = step(async (idp, names: string) =>
  idp.provider.publish(...(await idp.keys(names))),
);
const passes = step((idp, milliseconds: number) => idp.advance(milliseconds));
const requests = step(async (idp, count: number) => {
  // Our own request comes after one in the background.
  await fetch(idp.provider.url);
  expect(idp.provider.requests() - ++idp.ownRequests).toBe(count);
});
/** 503, because the key may be published by now, and it is too early to ask. */
const MAY_BE_NEW = "503: unknown key, which may be new";
const leaves: Step = (idp) => idp.provider.leave();
const comesBack: Step = (idp) => idp.provider.comeBack();

test.each<[string, readonly (Step | readonly Step[])[]]>([
  [
    "a new key is accepted with its first token, and the old one remains",
    [
      asks("a", true),
      publishes("ab"),
      passes(10 * SECONDS),
      asks("b", true),
      asks("a2", true),
      requests(2),
    ],
  ],
  [
    "a key published just after a fetch gets 503, and is accepted 10 seconds later",
    [
      [asks("a", true), publishes("ab"), asks("b", MAY_BE_NEW), passes(10 * SECONDS - 1)],
      [asks("b", MAY_BE_NEW), requests(1), passes(1), asks("b", true), requests(2)],
    ],
  ],
  [
    "a key that the provider does not publish gets 401 from a fetch of its own, and 503 between fetches",
    [
      [asks("a", true), asks("b", MAY_BE_NEW), passes(10 * SECONDS), asks("b", "unknown key")],
      [asks("b", MAY_BE_NEW), requests(2), passes(10 * SECONDS), asks("b", "unknown key")],
      [requests(3), passes(10 * SECONDS), publishes("ab"), asks("b", true), requests(4)],
    ],
  ],
  [
    "made-up key ids bring one fetch every 10 seconds, and keep no new key out for longer",
    [
      [asks("a", true), passes(10 * SECONDS), asks("b", "unknown key"), asks("c", MAY_BE_NEW)],
      [publishes("ae"), asks("d", MAY_BE_NEW), asks("e", MAY_BE_NEW), requests(2)],
      [asks("a2", true), passes(10 * SECONDS), asks("b", "unknown key"), asks("e", true)],
      requests(3),
    ],
  ],
  [
    "a withdrawn key ends when another one brings the keys in",
    [
      asks("a", true),
      publishes("b"),
      passes(10 * SECONDS),
      asks("b", true),
      asks("a", MAY_BE_NEW),
      passes(10 * SECONDS),
      asks("a", "unknown key"),
    ],
  ],
  [
    "a withdrawn key ends 10 minutes after it was last confirmed, even if no token came meanwhile",
    [asks("a", true), publishes("b"), passes(10 * MINUTES), asks("a", "unknown key")],
  ],
  [
    "a provider that publishes no key at all has withdrawn them all",
    [asks("a", true), publishes(""), passes(10 * MINUTES), asks("a", "unknown key")],
  ],
  [
    "a remembered token is accepted for 5 minutes, and once more while its withdrawn key is found out",
    [
      [asks("a", true), publishes("b"), passes(5 * MINUTES - 1), remembers("a"), requests(1)],
      [passes(1), revalidates("a"), asks("b", true), requests(2)],
      [asks("a", MAY_BE_NEW), requests(2)],
    ],
  ],
  [
    "a remembered token waits for keys that are 10 minutes old, and is not verified again if they are the same",
    [
      [asks("a", true), passes(10 * MINUTES), asks("a2", true), requests(2), remembers("a")],
      [passes(10 * MINUTES), asks("a", true), requests(3), remembers("a")],
    ],
  ],
  [
    "remembered tokens and keys are used for 24 hours while the provider is down, and no longer",
    [
      [asks("a", true), leaves, passes(1 * HOURS), asks("a2", true)],
      // Known to be away: nothing waits for the next fetch.
      [passes(10 * SECONDS), remembers("a")],
      [passes(23 * HOURS - 10 * SECONDS - 1), asks("a3", true), asks("a", true), remembers("a")],
      [
        passes(1),
        asks("a", "503: keys unavailable"),
        comesBack,
        passes(10 * SECONDS),
        asks("a", true),
      ],
    ],
  ],
  [
    "tokens get 503 while nothing listens at the start",
    [leaves, asks("a", "503: keys unavailable"), comesBack, passes(10 * SECONDS), asks("a", true)],
  ],
])("%s", async (_, steps) => {
  await using idp = await world();
  for (const step of steps.flat()) await step(idp);
});

test("publishing the same keys in another notation forgets no token", async () => {
  await using idp = await world();
  await publishes("ab")(idp);
  await asks("a", true)(idp);
  const keys = (await idp.keys("ab")).map(({ jwk }) => jwk);
  idp.provider.responses(() => new Response(JSON.stringify({ at: NOW, keys }, null, 2)));
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, jti: "another" }))).toBe(true);
  await remembers("a")(idp);
});

test("a fetch that takes longer than 10 seconds is still the only one", async () => {
  await using idp = await identityProvider({ timeoutMs: 60_000 });
  const token = await signed(idp.key, CLAIMS);
  const { asked, release } = idp.provider.hold();
  const first = idp.check(token);

  await asked;
  idp.advance(10 * SECONDS);
  const second = idp.verdict(signed(idp.key, { ...CLAIMS, jti: "second" }));
  release();

  expect(await Promise.all([first, second])).toEqual([true, true]);
  expect(idp.provider.requests()).toBe(1);

  idp.advance(10 * MINUTES - 10 * SECONDS);
  expect(idp.check(token)).toBeInstanceOf(Promise);
});

test("a fetch that began before a token came does not tell that its key is not published", async () => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.advance(10 * SECONDS);
  const [first = "", second = ""] = tokensOfUnknownKeys(2);
  const { asked, release } = idp.provider.hold();
  const verdict = idp.check(first);
  await asked;
  const late = idp.check(second);
  release();

  expect([await verdict, await late]).toEqual(["unknown key", MAY_BE_NEW]);
  expect(idp.provider.requests()).toBe(2);
});

test("1,000 tokens that wait for a slow provider do not delay one whose key is known", async () => {
  await using idp = await identityProvider({ timeoutMs: 600_000 });
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.advance(10 * SECONDS);
  const { asked, release } = idp.provider.hold();
  const [last = "", ...unknown] = tokensOfUnknownKeys(1_001);
  const waiting = unknown.map(idp.check);

  await asked;
  const full = "503: too many JWTs wait for the identity provider's keys";
  expect(await idp.check(last)).toBe(full);
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, jti: "new" }))).toBe(true);

  release();
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(["unknown key"]));

  // The next fetch has room for as many.
  idp.advance(10 * SECONDS);
  expect(new Set(await Promise.all(unknown.map(idp.check)))).toEqual(new Set(["unknown key"]));
});

/** Tokens of an attacker, each with another key id. */
function tokensOfUnknownKeys(count: number): string[] {
  return Array.from({ length: count }, (_, i) => unsigned({ alg: "ES256", kid: `unknown-${i}` }));
}

// Provider away

/**
 * Every way of not publishing keys; `slow` ones, at the end, wait for the timeout, all of them at
 * once.
 */
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
  ["answers keys that are not objects", () => Response.json({ keys: [1, null, "key"] })],
  [
    "answers keys and half a character",
    () => new Response(new Uint8Array([...UTF8.encode('{"keys": []}'), 0xc3])),
  ],
  ["answers more than 256 KiB", () => Response.json({ keys: [], more: "x".repeat(262_144) })],
  ["answers without an end", endless],
  [
    "answers a compressed flood",
    () => new Response(FLOOD, { headers: { "content-encoding": "gzip" } }),
  ],
  ["does not answer", () => new Promise<Response>(() => {}), { slow: true }],
  ["stops in the middle of its response", stalled, { slow: true }],
];

const FLOOD = Bun.gzipSync(new Uint8Array(5_000_000).fill(0x20));

function endless(): Response {
  return new Response(
    new ReadableStream({ pull: (stream) => stream.enqueue(new Uint8Array(16_384).fill(0x20)) }),
  );
}

function stalled(): Response {
  return new Response(
    new ReadableStream({ start: (stream) => stream.enqueue(UTF8.encode('{"keys": [')) }),
  );
}

for (const [fails, failure, { slow = false } = {}] of FAILURES) {
  const testOf = slow ? test.concurrent : test;
  // Long enough for every good response, and short enough for a test.
  const timeout = slow ? { timeoutMs: 400 } : {};

  testOf(
    `when the provider ${fails} at the start, tokens get 503 until it recovers, and it is asked every 10 seconds`,
    async () => {
      await using idp = await identityProvider(timeout);
      const token = await signed(idp.key, CLAIMS);
      idp.provider.responses(failure);
      const verdicts = await Promise.all([idp.check(token), idp.check(token)]);
      expect(verdicts).toEqual(["503: keys unavailable", "503: keys unavailable"]);

      idp.provider.publish(idp.key);
      idp.advance(10 * SECONDS - 1);
      expect(await idp.check(token)).toBe("503: keys unavailable");
      expect([idp.provider.requests(), idp.causes]).toEqual([1, [expect.any(Error)]]);

      idp.advance(1);
      expect(await idp.check(token)).toBe(true);
    },
  );

  testOf(
    `when the provider ${fails} later, cached keys stay in use and tokens of new ones get 503 until it recovers`,
    async () => {
      await using idp = await identityProvider(timeout);
      const next = await signingKey();
      const token = await signed(idp.key, CLAIMS);
      expect(await idp.check(token)).toBe(true);

      idp.provider.responses(failure);
      idp.advance(15 * MINUTES);
      expect(await idp.check(token)).toBe(true);
      expect(await idp.verdict(signed(next, CLAIMS))).toBe("503: keys unavailable");
      expect([idp.provider.requests(), idp.causes.length]).toEqual([2, 1]);

      idp.provider.publish(next);
      idp.advance(10 * SECONDS);
      expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
      expect(await idp.check(token)).toBe(MAY_BE_NEW);
    },
  );
}

test("a redirect is not followed, wherever it leads", async () => {
  await using idp = await identityProvider();
  await using elsewhere = jwksServer(idp.key);
  idp.provider.responses(() => Response.redirect(elsewhere.url.href));
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("503: keys unavailable");
  expect(elsewhere.requests()).toBe(0);
});

// Published keys

test("a hundred keys with their certificates are read, even from chunks that split a character", async () => {
  await using idp = await identityProvider();
  const key = await signingKey("ES256", "🌿");
  const old = Array.from({ length: 100 }, (_, i) => ({
    ...idp.key.jwk,
    kid: `old-${i}`,
    x5c: ["M".repeat(2_000)],
  }));
  const bytes = UTF8.encode(JSON.stringify({ keys: [...old, key.jwk] }));
  const cut = bytes.indexOf(0xf0) + 1;

  async function* pieces() {
    yield bytes.subarray(0, cut);
    // Pieces of one turn of the event loop would travel together.
    await Bun.sleep(1);
    yield bytes.subarray(cut);
  }

  idp.provider.responses(() => new Response(streamOf(pieces())));
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
});

/** It says more than "unknown": the provider has published the key. */
const UNFIT = "the key is published for another use or algorithm";

test.each<[string, (idp: IdentityProvider) => Promise<JWK>, string]>([
  ["of an unknown type", changed({ kty: "XYZ" }), UNFIT],
  ["without a type", async ({ key }) => ({ kid: key.kid }) as JWK, UNFIT],
  ["of another curve", changed({ crv: "P-384" }), UNFIT],
  ["for SPIFFE alone", changed({ use: "jwt-svid" }), UNFIT],
  ["for encryption", changed({ use: "enc" }), UNFIT],
  ["for another algorithm", changed({ alg: "ES384" }), UNFIT],
  ["that must not verify", changed({ key_ops: ["sign"] }), UNFIT],
  ["without its coordinates", changed({ x: undefined, y: undefined }), "unusable key"],
  ["with coordinates that are not text", changed({ x: 1, y: [] }), "unusable key"],
  ["with a point off the curve", changed({ x: "A".repeat(43), y: "A".repeat(43) }), "unusable key"],
  ["with its private half", privateJwk, "unusable key"],
  ["with an empty private half", changed({ d: "" }), "unusable key"],
])(
  "a published key %s invalidates its own tokens, even remembered ones, and no others",
  async (_, publish, reason) => {
    await using idp = await identityProvider();
    const good = await signingKey();
    const token = await signed(idp.key, CLAIMS);
    const strange = await signed(await signingKey(), CLAIMS);

    idp.provider.publish(idp.key, good);
    expect(await idp.check(token)).toBe(true);

    idp.provider.publish(await publish(idp), good);
    idp.advance(5 * MINUTES);
    expect(idp.check(token)).toBe(true);
    // It joins the fetch in the background, which began before it came.
    expect(await idp.check(strange)).toBe(MAY_BE_NEW);
    expect(await idp.check(token)).toBe(reason);
    expect(await idp.verdict(signed(good, CLAIMS))).toBe(true);
    expect(idp.provider.requests()).toBe(2);
  },
);

function changed(members: Readonly<Record<string, unknown>>) {
  return async ({ key }: IdentityProvider) => ({ ...key.jwk, ...members }) as JWK;
}

async function privateJwk({ key: { privateKey, jwk } }: IdentityProvider): Promise<JWK> {
  return { ...jwk, d: (await exportJWK(privateKey)).d ?? "" } as JWK;
}

/** A public RSA key of 1,024 bits. */
function weakRsaKey(kid: string): JWK {
  const n = base64url.encode(new Uint8Array(128).fill(255));
  return { kty: "RSA", kid, n, e: "AQAB" } as JWK;
}

test("an RSA key of fewer than 2,048 bits is not used", async () => {
  await using idp = await identityProvider();
  idp.provider.publish(weakRsaKey("weak"));

  expect(await idp.check(unsigned({ alg: "RS256", kid: "weak" }))).toBe("unusable key");
});

test("a token without `kid` is tried with its key, however many keys that cannot be used come first", async () => {
  await using idp = await identityProvider();
  const good = await signingKey("RS256");
  const weak = ["1", "2", "3", "4", "5"].map(weakRsaKey);
  const token = await signed(good, CLAIMS, { kid: undefined });

  idp.provider.publish(...weak, good);
  expect(await idp.check(token)).toBe(true);
  expect(await idp.check(unsigned({ alg: "RS256" }))).toBe("bad signature");
});

// Forms of published keys

test.each<[string, alg: string, jwk: Readonly<Record<string, unknown>>]>([
  ["with the operations of both halves", "ES256", { key_ops: ["sign", "verify"] }],
  ["whose algorithm is called Ed25519, for EdDSA", "EdDSA", { alg: "Ed25519" }],
  ["whose algorithm is called EdDSA, for Ed25519", "Ed25519", { alg: "EdDSA" }],
])("a published key %s verifies tokens", async (_, alg, changes) => {
  await using idp = await identityProvider();
  const key = await signingKey(alg);
  idp.provider.publish({ ...key.jwk, ...changes });
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
});

test("a published Ed448 key is not unknown, and verifies nothing", async () => {
  await using idp = await identityProvider();
  idp.provider.publish({ kty: "OKP", crv: "Ed448", kid: "k", x: "A".repeat(76), alg: "EdDSA" });
  expect(await idp.check(unsigned({ alg: "EdDSA", kid: "k" }))).toBe(UNFIT);
});

test("members of `keys` that are no keys invalidate no others", async () => {
  await using idp = await identityProvider();
  const keys = [null, "key", 1, [], {}, { kid: 1 }, idp.key.jwk];
  idp.provider.responses(() => Response.json({ keys }));
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a token without `kid` is tried with four keys that fit, and with no more", async () => {
  await using idp = await identityProvider();
  const keys = await Promise.all(Array.from({ length: 5 }, () => signingKey()));
  const jwks = keys.map(({ jwk }): JWK => ({ ...jwk, kid: undefined as never }));
  const verdicts = (own: readonly SigningKey[]) =>
    Promise.all(own.map((key) => idp.verdict(signed(key, CLAIMS, { kid: undefined }))));

  idp.provider.publish(...jwks.slice(0, 4));
  expect(await verdicts(keys)).toEqual([true, true, true, true, "bad signature"]);
  expect(await idp.check(unsigned({ alg: "ES256" }))).toBe("bad signature");

  idp.provider.publish(...jwks);
  idp.advance(10 * MINUTES);
  expect(await verdicts(keys)).toEqual([true, true, true, true, "ambiguous key"]);
});

// A new key under the id of the old one

test.each<[string, Record<string, unknown>]>([
  ["the same `kid`", { kid: "default" }],
  ["no `kid`", { kid: undefined }],
])(
  "a new key with %s is refused for 10 seconds at most, and then tokens of the old one are",
  async (_, header) => {
    let fetched = Promise.withResolvers<void>();
    await using idp = await identityProvider({ onKeysFetched: () => fetched.resolve() });
    const [old, next] = await Promise.all([signingKey(), signingKey()]);
    const publish = ({ jwk }: SigningKey) => idp.provider.publish({ ...jwk, ...header } as JWK);
    const verdict = (key: SigningKey, jti: string) =>
      idp.verdict(signed(key, { ...CLAIMS, jti }, header));

    publish(old);
    expect(await verdict(old, "first")).toBe(true);

    publish(next);
    expect(await verdict(next, "second")).toBe("bad signature");
    expect(idp.provider.requests()).toBe(1);

    fetched = Promise.withResolvers();
    idp.advance(10 * SECONDS);
    expect(await verdict(next, "second")).toBe("bad signature");
    await fetched.promise;
    expect(await verdict(next, "second")).toBe(true);
    expect(await verdict(old, "first")).toBe("bad signature");
    expect(idp.provider.requests()).toBe(2);
  },
);

test("a new key under the old `kid` for another algorithm is refused for 10 seconds at most", async () => {
  await using idp = await identityProvider();
  const next = await signingKey("EdDSA", idp.key.kid);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.provider.publish(next);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(UNFIT);

  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
});

test("forged tokens bring one fetch every 10 seconds, and are refused at once", async () => {
  let fetched = Promise.withResolvers<void>();
  await using idp = await identityProvider({ onKeysFetched: () => fetched.resolve() });
  const forged = (signature: string) =>
    idp.verdict(`${unsigned({ alg: "ES256", kid: idp.key.kid })}${signature.repeat(4)}`);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  const verdicts = [];
  for (const signature of "abcdefgh") verdicts.push(await forged(signature));
  expect(new Set(verdicts)).toEqual(new Set(["bad signature"]));
  expect(idp.provider.requests()).toBe(1);

  fetched = Promise.withResolvers();
  idp.advance(10 * SECONDS);
  expect(await forged("i")).toBe("bad signature");
  await fetched.promise;
  expect(await forged("j")).toBe("bad signature");
  expect(idp.provider.requests()).toBe(2);
});

test("a forged token does not wait for a slow provider", async () => {
  await using idp = await identityProvider({ timeoutMs: 600_000 });
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.advance(10 * SECONDS);
  const { asked, release } = idp.provider.hold();
  expect(await idp.check(unsigned({ alg: "ES256", kid: idp.key.kid }))).toBe("bad signature");
  // The fetch that it asked for is still in flight.
  expect([await asked, idp.causes]).toEqual([undefined, []]);
  release();
});

test("a forged token stays refused while the provider is away", async () => {
  await using idp = await identityProvider();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  await idp.provider.leave();
  const forged = unsigned({ alg: "ES256", kid: idp.key.kid });
  expect(await idp.check(forged)).toBe("bad signature");
  expect(await idp.check(forged)).toBe("bad signature");
});

// The reason for the log

test.each<[string, CannedResponse, string]>([
  [
    "the discovery document",
    () =>
      Response.json({
        issuer: "https://id.example.com/",
        jwks_uri: "https://me:secret@id.example.com/keys?key=secret#secret",
      }),
    "The JWKS URL returned the discovery document: use its jwks_uri, https://id.example.com/keys",
  ],
  [
    "a discovery document without a usable URL",
    () => Response.json({ jwks_uri: "\u001b[31m" }),
    "The JWKS URL returned the discovery document: use its jwks_uri",
  ],
  ["a page", () => new Response("<!doctype html>"), "The JWKS URL did not return JSON"],
  ["an object", () => Response.json({}), "The JWKS URL did not return a JWK Set"],
  [
    "a set of no keys",
    () => Response.json({ keys: [null] }),
    "The JWK Set has no key that is an object",
  ],
])("if the JWKS URL returns %s, the reason says so", async (_, response, message) => {
  await using idp = await identityProvider();
  idp.provider.responses(response);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("503: keys unavailable");
  expect(idp.causes).toEqual([new Error(message)]);
});

// Keys without tokens

test("refreshKeys() fetches keys when they are due, tells of each failure and of each success, and never rejects", async () => {
  let fetched = 0;
  await using idp = await identityProvider({ onKeysFetched: () => void fetched++ });
  const counts = () => [idp.provider.requests(), fetched, idp.causes.length];
  const refresh = () => idp.authenticate.refreshKeys();

  await Promise.all([refresh(), refresh()]);
  expect(counts()).toEqual([1, 1, 0]);
  // No token waits for keys.
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.advance(5 * MINUTES - 1);
  await refresh();
  expect(counts()).toEqual([1, 1, 0]);

  idp.provider.responses(() => new Response(null, { status: 500 }));
  idp.advance(1);
  await refresh();
  await refresh();
  expect(counts()).toEqual([2, 1, 1]);

  idp.provider.publish(idp.key);
  idp.advance(10 * SECONDS);
  await refresh();
  expect(counts()).toEqual([3, 2, 1]);
});

test("a log that rejects is not a failed fetch: no token and no refresh fails because of it", async () => {
  using print = spyOn(console, "error").mockImplementation(() => {});
  const failure = new Error("the log is full");
  const tell = () => Promise.reject(failure) as never;
  await using idp = await identityProvider({ onKeysFetched: tell, onKeysUnavailable: tell });

  await idp.authenticate.refreshKeys();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);

  idp.provider.responses(() => new Response(null, { status: 500 }));
  idp.advance(5 * MINUTES);
  await idp.authenticate.refreshKeys();
  expect(await idp.verdict(signed(await signingKey(), CLAIMS))).toBe("503: keys unavailable");
  expect(await idp.verdict(signed(idp.key, { ...CLAIMS, jti: "another" }))).toBe(true);
  expect(print.mock.calls).toEqual([
    ["`onKeysFetched` threw:", failure],
    ["`onKeysUnavailable` threw:", failure],
  ]);
});

test("a hung provider lets no token wait if keys are refreshed by a timer", async () => {
  await using idp = await identityProvider({ timeoutMs: 400 });
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.check(token)).toBe(true);

  const { release } = idp.provider.hold();
  idp.advance(5 * MINUTES);
  await idp.authenticate.refreshKeys();
  release();
  idp.advance(5 * MINUTES);
  // A verdict, and not a promise of one.
  expect(idp.check(token)).toBe(true);
});
