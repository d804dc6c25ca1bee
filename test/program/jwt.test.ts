import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { join } from "node:path";

import { mintToken } from "../../src/auth/token_format.ts";
import { post } from "../support/client.ts";
import { AUDIENCE, ISSUER, jwksServer, signed, signingKey } from "../support/jwt_provider.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { readError } from "../support/responses.ts";

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
    const groups = Array.from({ length: 200 }, () => crypto.randomUUID());
    expect(await statusOf(server.url, await signed(key, { ...claims, groups }))).toBe(200);

    const { token: minted } = mintToken();
    const encrypted = `${btoa('{"alg":"dir","enc":"A256GCM"}').replaceAll("=", "")}..AAAA.BBBB.CCCC`;
    const tokens = [own, minted, "a.b", encrypted, "a.b.c", "a".repeat(14_337)];
    for (const token of tokens) expect(await statusOf(server.url, token)).toBe(401);
    await server.stderr.until(/too long/);
    const reasons = server.stderr.text().matchAll(/"reason":"((?:[^"\\]|\\.)+)"/g);
    expect(Array.from(reasons, ([, reason]) => reason)).toEqual([
      String.raw`wrong audience: expected \"plant-store\", got \"another\"`,
      "not a signed JWT",
      "unknown",
      "not a signed JWT",
      "an encrypted JWT, not a signed one",
      "malformed",
      "too long",
    ]);
    expect(server.stderr.text()).not.toContain("plant_");
  }

  await using server = await startServer({ env: { ...env, AUTH_TOKENS: `${own},${dotted}` } });
  for (const token of [own, dotted, await signed(key, claims)])
    expect(await statusOf(server.url, token)).toBe(200);
});

const OK = "HTTP/1.1 200 OK\r\n";

/** What a broken provider answers, and why its keys cannot be read. */
const BROKEN: readonly (readonly [response: string, says: string])[] = [
  [`${OK}content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello`, "ZlibError fetching"],
  [`${OK}content-length: x\r\n\r\n{}`, "InvalidContentLength fetching"],
  [
    `${OK}content-length: 9\r\n\r\n{}`,
    "it closed the connection before its response was complete (ECONNRESET)",
  ],
];

test.each<readonly [response: string | undefined, says: string]>([
  ...BROKEN,
  [undefined, "nothing listens there (ECONNREFUSED)"],
])(
  "no query of AUTH_JWKS_URL gets into the log, and no advice of the runtime: %j",
  async (response, says) => {
    const provider =
      response === undefined
        ? { port: 9, stop() {} }
        : Bun.listen({
            hostname: "127.0.0.1",
            port: 0,
            socket: { data: (socket) => void socket.end(response) },
          });
    const env = jwtSettings(`http://127.0.0.1:${provider.port}/jwks?key=query-secret`);
    await using server = await startServer({ env });

    // Before a token comes.
    const [line] = await server.stderr.until(/.*Cannot fetch the identity provider's keys.*\n/);
    expect(JSON.parse(line)).toMatchObject({
      level: "WARN",
      reason: expect.stringContaining(says),
    });
    expect(server.stderr.text()).not.toMatch(/query-secret|verbose/);
    provider.stop();
  },
);

test("while keys cannot be had a good token gets 503 with Retry-After, and later 200; both are logged", async () => {
  const key = await signingKey();
  await using provider = jwksServer(key);
  await provider.leave();
  await using server = await startServer({ env: jwtSettings(provider.url.href) });
  const token = await signed(key, goodClaims());

  const response = await post(server.url, undefined, { token });
  expect(response.headers.get("retry-after")).toBe("1");
  expect(await readError(response)).toEqual({
    status: 503,
    error: 5031,
    message: "the token's key is unavailable; send the plant again later",
  });
  await server.stderr.until(/Cannot validate credentials.*keys unavailable/);

  provider.comeBack();
  // No token brings them back.
  await server.stderr.until(/The identity provider's keys are available again/);
  expect(await statusOf(server.url, token)).toBe(200);
  expect(server.stderr.text().match(/Cannot fetch the identity/g)).toHaveLength(1);
});

test("with AUTH_SUBJECTS other subjects get 403, and the access log says whose token came", async () => {
  const key = await signingKey();
  await using provider = jwksServer(key);
  const env = {
    ...jwtSettings(provider.url.href),
    AUTH_SUBJECTS: "gardener, repo:garden/*",
    ACCESS_LOG: "on",
  };
  await using server = await startServer({ env });
  const statuses: number[] = [];
  for (const sub of ["gardener", "repo:garden/plants", "stranger"])
    statuses.push(await statusOf(server.url, await signed(key, { ...goodClaims(), sub })));
  expect(statuses).toEqual([200, 200, 403]);

  await server.stderr.until(/"stranger"/);
  expect(server.stderr.text()).toContain('"reason":"the token does not have a listed subject"');
  const callers = server.stderr.text().matchAll(/"subject":"([^"]+)","issuer":"([^"]+)"/g);
  expect(Array.from(callers, ([, ...caller]) => caller)).toEqual([
    ["gardener", ISSUER],
    ["repo:garden/plants", ISSUER],
    ["stranger", ISSUER],
  ]);
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
    const token = await signed(forged, goodClaims(), { kid: key.kid });
    expect(await statusOf(server.url, token)).toBe(requests === 0 ? 401 : 503);
    expect(await statusOf(server.url, await signed(key, goodClaims()))).toBe(
      requests === 0 ? 200 : 503,
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
  // As `openssl rehash` names it.
  using directory = emptyDirectory();
  copyFileSync(file("localhost.crt"), directory.at("ce275665.0"));

  for (const [env, status] of [
    [{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, 503],
    [{ NODE_EXTRA_CA_CERTS: file("localhost.crt") }, 200],
    [{ SSL_CERT_FILE: file("localhost.crt") }, 200],
    [{ SSL_CERT_DIR: directory.path }, 200],
  ] as const) {
    await using server = await startServer({ env: { ...settings, ...env } });
    expect(await statusOf(server.url, await signed(key, goodClaims()))).toBe(status);
    if (status === 503)
      await server.stderr.until(/Cannot fetch the identity provider's keys.*certificate/);
  }
});

test("in production there is no warning that no token is accepted", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  await runToEnd({ cwd, args: ["migrate"] });

  const env = { NODE_ENV: "production", ...jwtSettings("http://127.0.0.1:9/") };
  await using server = await startServer({ cwd, env });
  server.child.kill("SIGTERM");
  expect(await server.stderr.end).not.toContain("No token");
});
