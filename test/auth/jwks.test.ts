import { expect, setDefaultTimeout, test } from "bun:test";
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
  signingKey,
  UTF8,
} from "../support/jwks.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Caching

test("keys are fetched when the first token needs one, once for all that come together, and kept", async () => {
  await using idp = await identityProvider();
  expect(idp.provider.requests()).toBe(0);
  const token = await signed(idp.key, CLAIMS);
  expect(await Promise.all(Array.from({ length: 50 }, () => idp.check(token)))).toEqual(Array(50).fill(true));
  idp.advance(5 * MINUTES - 1);
  expect(await idp.verdict(token)).toBe(true);
  // Our own request would come after one in the background.
  await fetch(idp.provider.url);
  expect(idp.provider.requests()).toBe(2);
});

test("a new key counts with its first token, and the old one goes on", async () => {
  await using idp = await identityProvider();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(idp.key, next);
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  expect(idp.provider.requests()).toBe(2);
});

test("a withdrawn key ends when a new one brings the keys in anew", async () => {
  await using idp = await identityProvider();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(next);
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unknown key");
});

test("a withdrawn key ends 10 minutes after it was last confirmed, also when no token came meanwhile", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(await signingKey());
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(token)).toBe("unknown key");
});

test("a remembered token ends with its key, as soon as other keys are seen", async () => {
  await using idp = await identityProvider();
  const next = await signingKey();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(next);
  idp.advance(5 * MINUTES - 1);
  expect(idp.check(token)).toBe(true);
  idp.advance(1);
  // Accepted at once, and what is fetched in the background ends it.
  expect(idp.check(token)).toBe(true);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.check(token)).toBe("unknown key");
});

test("a remembered token waits for the keys that are 10 minutes old, and for none that are confirmed", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  for (const requests of [2, 3]) {
    idp.advance(10 * MINUTES);
    const verdict = idp.check(token);
    expect(verdict).toBeInstanceOf(Promise);
    expect(await verdict).toBe(true);
    expect(idp.check(token)).toBe(true);
    expect(idp.provider.requests()).toBe(requests);
  }
});

test("a remembered token goes on without being verified when the same keys are seen again", async () => {
  await using idp = await identityProvider();
  const [token, other] = [await signed(idp.key, CLAIMS), await signed(idp.key, { ...CLAIMS, jti: "other" })];
  expect(await idp.verdict(token)).toBe(true);
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(other)).toBe(true);
  expect(idp.provider.requests()).toBe(2);
  expect(idp.check(token)).toBe(true);
});

test("a remembered token goes on for 24 hours while the provider is away, and no longer", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, { ...CLAIMS, exp: NOW + 1_000_000 });
  expect(await idp.verdict(token)).toBe(true);
  await idp.provider.leave();
  idp.advance(24 * HOURS - 1);
  expect(await idp.verdict(token)).toBe(true);
  expect(idp.check(token)).toBe(true);
  idp.advance(1);
  expect(await idp.check(token)).toBe("keys unavailable");
});

test("a provider that publishes no key at all has withdrawn them all", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish();
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(token)).toBe("unknown key");
});

test("keys are confirmed after 5 minutes, while cached ones go on and nobody waits", async () => {
  await using idp = await identityProvider({ timeoutMs: 600_000 });
  const next = await signingKey();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.publish(next);
  idp.advance(5 * MINUTES);
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
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  const { asked, release } = idp.provider.hold();
  const waiting = idp.verdict(token);
  await asked;
  idp.advance(10 * MINUTES);
  release();
  expect(await waiting).toBe(true);
  expect(await idp.verdict(token)).toBe(true);
  expect(idp.provider.requests()).toBe(2);
});

test("a fetch that takes longer than 10 seconds is still the only one", async () => {
  await using idp = await identityProvider({ timeoutMs: 60_000 });
  const token = await signed(idp.key, CLAIMS);
  const { asked, release } = idp.provider.hold();
  const first = idp.check(token);
  await asked;
  idp.advance(10 * SECONDS);
  const second = idp.check(token);
  release();
  expect(await Promise.all([first, second])).toEqual([true, true]);
  expect(idp.provider.requests()).toBe(1);
});

test("a key exchanged under its old id counts when the keys are confirmed", async () => {
  await using idp = await identityProvider();
  const next = await signingKey("ES256", idp.key.kid);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(next);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe("bad signature");
  idp.advance(10 * MINUTES);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("bad signature");
});

test("unknown key ids bring one fetch every 10 seconds, however many come", async () => {
  await using idp = await identityProvider();
  const attacker = await signingKey();
  const flood = () =>
    Promise.all(
      Array.from({ length: 50 }, async () => idp.check(await signed(attacker, CLAIMS, { kid: crypto.randomUUID() }))),
    );
  for (let round = 1; round <= 3; round++) {
    expect([...new Set(await flood())]).toEqual(["unknown key"]);
    idp.advance(10 * SECONDS - 1);
    await flood();
    expect(idp.provider.requests()).toBe(round);
    idp.advance(1);
  }
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a key published just after a fetch counts 10 seconds later", async () => {
  await using idp = await identityProvider();
  const next = await signingKey();
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
  idp.provider.publish(idp.key, next);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe("unknown key");
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
});

// Provider away

/** Every way of not publishing keys; `slow` ones, at the end, wait for the time-out, all of them at once. */
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

for (const [fails, failure, { slow } = {}] of FAILURES) {
  const testOf = slow ? test.concurrent : test;

  testOf(
    `when the provider ${fails} at the start, tokens are refused until it recovers, and it is asked every 10 seconds`,
    async () => {
      await using idp = await identityProvider(timeout(slow));
      const token = await signed(idp.key, CLAIMS);
      idp.provider.responses(failure);
      const verdicts = await Promise.all([idp.check(token), idp.check(token)]);
      expect(verdicts).toEqual(["keys unavailable", "keys unavailable"]);
      idp.provider.publish(idp.key);
      idp.advance(10 * SECONDS - 1);
      expect(await idp.verdict(token)).toBe("keys unavailable");
      expect([idp.provider.requests(), idp.causes.length]).toEqual([1, 1]);
      idp.advance(1);
      expect(await idp.verdict(token)).toBe(true);
    },
  );

  testOf(`when the provider ${fails} later, cached keys go on and new ones are refused until it recovers`, async () => {
    await using idp = await identityProvider(timeout(slow));
    const [next, token] = [await signingKey(), await signed(idp.key, CLAIMS)];
    expect(await idp.verdict(token)).toBe(true);
    idp.provider.responses(failure);
    idp.advance(15 * MINUTES);
    expect(await idp.verdict(token)).toBe(true);
    expect(await idp.verdict(signed(next, CLAIMS))).toBe("keys unavailable");
    expect([idp.provider.requests(), idp.causes.length]).toEqual([2, 1]);
    idp.provider.publish(next);
    idp.advance(10 * SECONDS);
    expect(await idp.verdict(signed(next, CLAIMS))).toBe(true);
    expect(await idp.verdict(token)).toBe("unknown key");
  });
}

test("a redirection is not followed, wherever it leads", async () => {
  await using idp = await identityProvider();
  await using elsewhere = jwksServer(idp.key);
  idp.provider.responses(() => Response.redirect(elsewhere.url.href));
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("keys unavailable");
  expect(elsewhere.requests()).toBe(0);
});

test("while the provider is unreachable, its cached keys are used for 24 hours and no longer", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  await idp.provider.leave();
  idp.advance(24 * HOURS - 1);
  expect(await idp.verdict(token)).toBe(true);
  idp.advance(1);
  expect(await idp.verdict(token)).toBe("keys unavailable");
  idp.provider.comeBack();
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(token)).toBe(true);
});

test("when nobody listens at the start, tokens are refused until the provider is there", async () => {
  await using idp = await identityProvider();
  const token = await signed(idp.key, CLAIMS);
  await idp.provider.leave();
  expect(await idp.verdict(token)).toBe("keys unavailable");
  expect(idp.causes).toEqual([expect.any(Error)]);
  idp.provider.comeBack();
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(token)).toBe(true);
});

test("once the provider is known to be away, cached keys do not wait for it", async () => {
  await using idp = await identityProvider({ timeoutMs: 600_000 });
  const token = await signed(idp.key, CLAIMS);
  expect(await idp.verdict(token)).toBe(true);
  idp.provider.responses(() => new Response(null, { status: 503 }));
  idp.advance(1 * HOURS);
  expect(await idp.verdict(token)).toBe(true);
  idp.advance(1 * HOURS);
  const { release } = idp.provider.hold();
  expect(await idp.verdict(token)).toBe(true);
  release();
  // A token that needs a new key joins the same fetch, so it is over afterwards.
  expect(await idp.verdict(signed(await signingKey(), CLAIMS))).toBe("keys unavailable");
  expect(idp.provider.requests()).toBe(3);
});

test("a long outage is told every 10 seconds at most, with its cause", async () => {
  await using idp = await identityProvider();
  idp.provider.responses(() => new Response(null, { status: 503 }));
  const token = await signed(idp.key, CLAIMS);
  for (let i = 0; i < 10; i++) {
    expect(await idp.verdict(token)).toBe("keys unavailable");
    idp.advance(5 * SECONDS);
  }
  expect(idp.causes).toHaveLength(5);
  expect(idp.causes[0]).toMatchObject({ message: "The JWKS URL answered 503" });
});

// Keys that are no good

test("keys that come in pieces, cut anywhere, are put together", async () => {
  await using idp = await identityProvider();
  const key = await signingKey("ES256", "🌿🌿🌿🌿🌿");
  idp.provider.responses(() => new Response(inPieces(UTF8.encode(JSON.stringify({ keys: [key.jwk] })))));
  expect(await idp.verdict(signed(key, CLAIMS))).toBe(true);
});

test("a hundred keys with their certificates are no trouble", async () => {
  await using idp = await identityProvider();
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
  await using idp = await identityProvider();
  const odd = await signingKey();
  const members =
    change.kty === undefined && Object.keys(change).length === 0 ? { kid: odd.kid } : { ...odd.jwk, ...change };
  idp.provider.publish(members as JWK, idp.key);
  expect(await idp.verdict(signed(odd, CLAIMS))).toBe(reason);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});

test("a private key that was published by mistake is not used", async () => {
  await using idp = await identityProvider();
  const { privateKey, kid, alg } = idp.key;
  idp.provider.publish({ ...(await exportJWK(privateKey)), kid, alg });
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unusable key");
  // Its id is known, so it is no reason to ask again.
  idp.advance(10 * SECONDS);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe("unusable key");
  expect(idp.provider.requests()).toBe(1);
});

test("an RSA key of fewer than 2,048 bits is not used", async () => {
  await using idp = await identityProvider();
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
  await using idp = await identityProvider();
  const encryption = await signingKey("ES256", idp.key.kid);
  idp.provider.publish({ ...encryption.jwk, alg: "ECDH-ES", use: "enc" }, idp.key);
  expect(await idp.verdict(signed(idp.key, CLAIMS))).toBe(true);
});
