import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { post } from "../support/client.ts";
import { AUDIENCE, ISSUER, jwksServer, signed, signingKey } from "../support/jwks.ts";
import { ROOT, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function jwtSettings(jwksUrl: string) {
  return { AUTH_JWKS_URL: jwksUrl, AUTH_ISSUER: ISSUER, AUTH_AUDIENCE: AUDIENCE };
}

function goodClaims() {
  return { iss: ISSUER, aud: AUDIENCE, exp: Math.floor(Date.now() / 1_000) + 600 };
}

async function statusOf(url: string, token: string): Promise<number> {
  return (await post(url, undefined, { token })).status;
}

test("the program follows AUTH_SCOPE and AUTH_ALGORITHMS", async () => {
  const key = await signingKey("EdDSA");
  const other = await signingKey("ES256");
  await using provider = jwksServer(key, other);
  const env = {
    ...jwtSettings(provider.url.href),
    AUTH_SCOPE: "plants:write",
    AUTH_ALGORITHMS: "EdDSA,RS256",
  };
  const claims = goodClaims();
  await using server = await startServer({ env });

  expect(
    await statusOf(server.url, await signed(key, { ...claims, scope: "openid plants:write" })),
  ).toBe(200);
  expect(await statusOf(server.url, await signed(key, { ...claims, scope: "openid" }))).toBe(403);

  await server.stderr.until(
    /Refused credentials.*does not have the required scope .{0,2}plants:write/,
  );
  expect(
    await statusOf(server.url, await signed(other, { ...claims, scope: "plants:write" })),
  ).toBe(401);

  await server.stderr.until(/algorithm not accepted/);
});

test("the program accepts an identity provider's JWTs beside its own tokens, and makes none by itself", async () => {
  const key = await signingKey();
  await using provider = jwksServer(key);
  const env = jwtSettings(provider.url.href);
  const own = "own-token-0123456789";
  const dotted = "own.token.0123456789";
  const claims = goodClaims();

  {
    await using server = await startServer({ env });
    expect(await statusOf(server.url, await signed(key, claims))).toBe(200);
    expect(await statusOf(server.url, await signed(key, { ...claims, aud: "another" }))).toBe(401);
    await server.stderr.until(/wrong audience/);
    const tokens = [own, "a.".repeat(100), "a.b", "a.b.c", "a".repeat(8_193)];
    for (const token of tokens) expect(await statusOf(server.url, token)).toBe(401);
    await server.stderr.until(/too long/);
    const reasons = server.stderr.text().matchAll(/"reason":"([^"]+)"/g);
    const expected = ["wrong audience", "unknown", "unknown", "unknown", "malformed", "too long"];
    expect(Array.from(reasons, ([, reason]) => reason)).toEqual(expected);
    expect(server.stderr.text()).not.toContain("plant_");
  }

  await using server = await startServer({ env: { ...env, AUTH_TOKENS: `${own},${dotted}` } });
  for (const token of [own, dotted, await signed(key, claims)])
    expect(await statusOf(server.url, token)).toBe(200);
});

test("no query of AUTH_JWKS_URL gets into the log, even if the keys cannot be read", async () => {
  const key = await signingKey();
  const env = jwtSettings("http://127.0.0.1:9/jwks?key=query-secret");
  await using server = await startServer({ env });
  expect(await statusOf(server.url, await signed(key, goodClaims()))).toBe(401);

  const [line] = await server.stderr.until(/.*Keys of the identity provider not read.*\n/);
  expect(JSON.parse(line)).toMatchObject({
    level: "WARN",
    reason: expect.stringContaining("Unable to connect"),
  });
  expect(server.stderr.text()).not.toContain("query-secret");
});

test("keys of a provider on this machine pass no proxy, and those of any other do", async () => {
  const key = await signingKey();
  const forged = await signingKey();
  await using provider = jwksServer(key);
  await using proxy = jwksServer(forged);
  const proxies = { HTTP_PROXY: proxy.url.href, HTTPS_PROXY: proxy.url.href };

  for (const [url, requests] of [
    [provider.url.href, 0],
    [provider.url.href.replace("127.0.0.1", "localhost"), 0],
    // It is asked to connect (RFC 9110, section 9.3.6), and does not.
    ["https://id.example.com/jwks", 1],
  ] as const) {
    await using server = await startServer({ env: { ...jwtSettings(url), ...proxies } });
    expect(await statusOf(server.url, await signed(forged, goodClaims()))).toBe(401);
    expect(await statusOf(server.url, await signed(key, goodClaims()))).toBe(
      requests === 0 ? 200 : 401,
    );
    expect(proxy.requests()).toBe(requests);
  }
});

test("the certificate of a provider is checked, whatever NODE_TLS_REJECT_UNAUTHORIZED says", async () => {
  const key = await signingKey();
  const file = (name: string) => join(ROOT, "test/support/tls", name);
  const tls = { cert: Bun.file(file("localhost.crt")), key: Bun.file(file("localhost.key")) };
  await using provider = Bun.serve({
    port: 0,
    tls,
    fetch: () => Response.json({ keys: [key.jwk] }),
  });
  const settings = jwtSettings(`https://localhost:${provider.port}/jwks`);

  for (const [env, status] of [
    [{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, 401],
    [{ NODE_EXTRA_CA_CERTS: file("localhost.crt") }, 200],
  ] as const) {
    await using server = await startServer({ env: { ...settings, ...env } });
    expect(await statusOf(server.url, await signed(key, goodClaims()))).toBe(status);
    if (status === 401)
      await server.stderr.until(/Keys of the identity provider not read.*certificate/);
  }
});
