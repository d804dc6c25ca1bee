import { expect, setDefaultTimeout, test } from "bun:test";
import { post } from "../support/client.ts";
import { jwksServer, signed, signingKey } from "../support/jwks.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

async function statusOf(url: string, token: string): Promise<number> {
  return (await post(url, undefined, { token })).status;
}

test("the program follows AUTH_SCOPE and AUTH_ALGORITHMS", async () => {
  const [key, other] = [await signingKey("EdDSA"), await signingKey("ES256")];
  await using provider = jwksServer(key, other);
  using directory = emptyDirectory();
  const env = {
    AUTH_JWKS_URL: provider.url.href,
    AUTH_ISSUER: "https://id.example.com/",
    AUTH_AUDIENCE: "plant-store",
    AUTH_SCOPE: "plants:write",
    AUTH_ALGORITHMS: "EdDSA,RS256",
  };
  const claims = { iss: env.AUTH_ISSUER, aud: env.AUTH_AUDIENCE, exp: Math.floor(Date.now() / 1_000) + 600 };
  await using server = await startServer({ cwd: directory.path, env });
  expect(await statusOf(server.url, await signed(key, { ...claims, scope: "openid plants:write" }))).toBe(200);
  expect(await statusOf(server.url, await signed(key, { ...claims, scope: "openid" }))).toBe(403);
  await server.stderr.until(/Refused credentials.*no scope/);
  expect(await statusOf(server.url, await signed(other, { ...claims, scope: "plants:write" }))).toBe(401);
  await server.stderr.until(/algorithm not accepted/);
});

test("the program accepts an identity provider's JWTs beside its own tokens, and makes none by itself", async () => {
  const key = await signingKey();
  await using provider = jwksServer(key);
  using directory = emptyDirectory();
  const env = {
    AUTH_JWKS_URL: provider.url.href,
    AUTH_ISSUER: "https://id.example.com/",
    AUTH_AUDIENCE: "plant-store",
  };
  const own = "own-token-0123456789";
  const claims = { iss: env.AUTH_ISSUER, aud: env.AUTH_AUDIENCE, exp: Math.floor(Date.now() / 1_000) + 600 };
  {
    await using server = await startServer({ cwd: directory.path, env });
    expect(await statusOf(server.url, await signed(key, claims))).toBe(200);
    expect(await statusOf(server.url, await signed(key, { ...claims, aud: "another" }))).toBe(401);
    expect(await statusOf(server.url, own)).toBe(401);
    await server.stderr.until(/wrong audience/);
    expect(server.stderr.text()).not.toContain("plant_");
  }
  await using server = await startServer({ cwd: directory.path, env: { ...env, AUTH_TOKENS: own } });
  expect(await statusOf(server.url, own)).toBe(200);
  expect(await statusOf(server.url, await signed(key, claims))).toBe(200);
});

test("no query of AUTH_JWKS_URL gets into the log, also when the keys cannot be read", async () => {
  const key = await signingKey();
  using directory = emptyDirectory();
  const env = {
    AUTH_JWKS_URL: "http://127.0.0.1:9/jwks?key=query-secret",
    AUTH_ISSUER: "https://id.example.com/",
    AUTH_AUDIENCE: "plant-store",
  };
  const claims = { iss: env.AUTH_ISSUER, aud: env.AUTH_AUDIENCE, exp: Math.floor(Date.now() / 1_000) + 600 };
  await using server = await startServer({ cwd: directory.path, env });
  expect(await statusOf(server.url, await signed(key, claims))).toBe(401);
  const [line] = await server.stderr.until(/.*Keys of the identity provider not read.*\n/);
  expect(JSON.parse(line)).toMatchObject({ level: "WARN", reason: expect.stringContaining("Unable to connect") });
  expect(server.stderr.text()).not.toContain("query-secret");
});
