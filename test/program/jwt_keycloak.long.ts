import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, existsSync, mkdirSync, readFileSync } from "node:fs";

import { decodeJwt, decodeProtectedHeader } from "jose";

import { pause, withDeadline } from "../../src/async/timers.ts";
import { post } from "../support/client.ts";
import { skipped } from "../support/missing.ts";
import {
  emptyDirectory,
  freePort,
  LONG_TEST_TIMEOUT_MS,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { readError } from "../support/responses.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Where its archive is unpacked. `.ci/run` sets it where Maven's registry is. */
const HOME = process.env["KEYCLOAK_HOME"] ?? "";
const skips =
  (!existsSync(`${HOME}/bin/kc.sh`) && skipped("a real Keycloak: KEYCLOAK_HOME names none")) ||
  (Bun.which("java") === null && skipped("a real Keycloak: there is no java"));

const home = emptyDirectory();
let keycloak: Awaited<ReturnType<typeof startKeycloak>>;

beforeAll(async () => {
  if (!skips) keycloak = await startKeycloak();
}, LONG_TEST_TIMEOUT_MS);
afterAll(async () => {
  if (!skips) await keycloak.stop();
  home[Symbol.dispose]();
});

// In this order: each goes on where the one before ended.

test.skipIf(skips)(
  "a service of Keycloak stores plants by the guide's settings, with the audience and the scope",
  async () => {
    await using server = await startServer({ env: { ...keycloak.settings, ACCESS_LOG: "on" } });
    const statusOf = async (scope: string) =>
      (await post(server.url, undefined, { token: await keycloak.serviceToken(scope) })).status;

    expect(await statusOf("plants:write")).toBe(200);
    const { sub } = decodeJwt(await keycloak.serviceToken("plants:write"));
    await server.stderr.until(new RegExp(`"subject":"${sub}","issuer":"${keycloak.issuer}"`));

    // As it comes, there is no audience.
    expect(await statusOf("")).toBe(401);
    await server.stderr.until(/wrong audience: expected \\"plant-store\\", got none/);
  },
);

test.skipIf(skips)("a token of Keycloak without the scope gets 403, which names it", async () => {
  await using server = await startServer({
    env: { ...keycloak.settings, AUTH_SCOPE: "plants:prune" },
  });
  const token = await keycloak.serviceToken("plants:write");
  const response = await post(server.url, undefined, { token });

  expect(response.headers.get("www-authenticate")).toEndWith('scope="plants:prune"');
  expect(await readError(response)).toEqual({
    status: 403,
    error: 4031,
    message: 'the token does not have the required scope "plants:prune"',
  });
});

test.skipIf(skips)("a person's ID token of Keycloak stores nothing", async () => {
  const { AUTH_SCOPE: _scope, ...settings } = keycloak.settings;
  await using server = await startServer({ env: { ...settings, AUTH_AUDIENCE: "app" } });
  const token = await keycloak.idToken();

  expect(decodeJwt(token)).toMatchObject({ iss: keycloak.issuer, aud: "app", typ: "ID" });
  expect((await post(server.url, undefined, { token })).status).toBe(401);
  await server.stderr.until(/an ID token, not an access token/);
});

test.skipIf(skips)(
  "Keycloak's new key is accepted soon after a rotation, its old one too, and both while it is down; then a new server answers 503",
  async () => {
    await using server = await startServer({ env: keycloak.settings });
    const old = await keycloak.serviceToken("plants:write");
    expect((await post(server.url, undefined, { token: old })).status).toBe(200);

    await keycloak.rotate();
    const token = await keycloak.serviceToken("plants:write");
    expect(decodeProtectedHeader(token).kid).not.toBe(decodeProtectedHeader(old).kid ?? "");
    // A server that has just asked for the keys says when to come again.
    const statusOf = async () => (await post(server.url, undefined, { token })).status;
    let status = await statusOf();
    for (; status === 503; status = await statusOf()) await pause(100);
    expect(status).toBe(200);
    const others = [old, await keycloak.serviceToken("plants:write")];

    await keycloak.stop();
    for (const each of others)
      expect((await post(server.url, undefined, { token: each })).status).toBe(200);

    await using another = await startServer({ env: keycloak.settings });
    const response = await post(another.url, undefined, { token });
    expect(response.headers.get("retry-after")).toBe("1");
    expect(await readError(response)).toMatchObject({ status: 503, error: 5031 });
    await another.stderr.until(/Cannot fetch the identity provider's keys.*nothing listens there/);
  },
);

/** A realm with a service, and an application that people log in to. */
const REALM = {
  realm: "garden",
  enabled: true,
  clientScopes: [
    {
      name: "plants:write",
      protocol: "openid-connect",
      attributes: { "include.in.token.scope": "true" },
      protocolMappers: [
        {
          name: "audience",
          protocol: "openid-connect",
          protocolMapper: "oidc-audience-mapper",
          config: { "included.custom.audience": "plant-store", "access.token.claim": "true" },
        },
      ],
    },
    {
      name: "basic",
      protocol: "openid-connect",
      protocolMappers: [
        {
          name: "sub",
          protocol: "openid-connect",
          protocolMapper: "oidc-sub-mapper",
          config: { "access.token.claim": "true" },
        },
      ],
    },
  ],
  clients: [
    {
      clientId: "robot",
      secret: "robot-secret",
      serviceAccountsEnabled: true,
      defaultClientScopes: ["basic"],
      optionalClientScopes: ["plants:write"],
    },
    { clientId: "admin", secret: "admin-secret", serviceAccountsEnabled: true },
    { clientId: "app", publicClient: true, directAccessGrantsEnabled: true },
  ],
  users: [
    {
      username: "service-account-admin",
      enabled: true,
      serviceAccountClientId: "admin",
      clientRoles: { "realm-management": ["realm-admin"] },
    },
    {
      username: "ann",
      enabled: true,
      email: "ann@example.org",
      firstName: "Ann",
      lastName: "Gardener",
      credentials: [{ type: "password", value: "ann-password" }],
    },
  ],
};

/** How long Keycloak may take to start, in milliseconds. A busy machine takes a minute. */
const START_MS = 300_000;

/** Starts a Keycloak with its realm, in memory. */
async function startKeycloak() {
  const directory = home.at("keycloak");
  // Its start writes into its directory.
  cpSync(HOME, directory, { recursive: true });
  mkdirSync(`${directory}/data/import`, { recursive: true });
  await Bun.write(`${directory}/data/import/garden.json`, JSON.stringify(REALM));

  const port = freePort();
  const log = home.at("keycloak.log");
  const options = ["--http-host=127.0.0.1", `--http-port=${port}`, "--import-realm"];
  const child = Bun.spawn([`${directory}/bin/kc.sh`, "start-dev", ...options], {
    env: {
      ...process.env,
      KC_DB: "dev-mem",
      JAVA_OPTS_APPEND: "-Xmx512m -XX:TieredStopAtLevel=1",
    },
    stdout: Bun.file(log),
    stderr: Bun.file(home.at("keycloak.err")),
  });

  const realm = `http://127.0.0.1:${port}/realms/garden`;
  const discovery = await withDeadline(discover(realm, child), START_MS, () => {
    child.kill("SIGKILL");
    throw new Error(`Keycloak did not start:\n${readFileSync(log, "utf8")}`);
  });

  async function tokens(parameters: Record<string, string>) {
    const body = new URLSearchParams(parameters);
    const response = await fetch(discovery.token_endpoint, { method: "POST", body });
    const answer = (await response.json()) as { access_token: string; id_token: string };
    if (!response.ok) throw new Error(`Keycloak refused: ${JSON.stringify(answer)}`);
    return answer;
  }

  return {
    issuer: discovery.issuer,
    /** The guide's settings. */
    settings: {
      AUTH_JWKS_URL: discovery.jwks_uri,
      AUTH_ISSUER: discovery.issuer,
      AUTH_AUDIENCE: "plant-store",
      AUTH_SCOPE: "plants:write",
    },

    async serviceToken(scope: string): Promise<string> {
      const client = { client_id: "robot", client_secret: "robot-secret" };
      const asked = scope === "" ? {} : { scope };
      return (await tokens({ grant_type: "client_credentials", ...client, ...asked })).access_token;
    },

    async idToken(): Promise<string> {
      const person = { username: "ann", password: "ann-password", scope: "openid" };
      return (await tokens({ grant_type: "password", client_id: "app", ...person })).id_token;
    },

    /** Signs with a new key from now on; the old one stays published. */
    async rotate(): Promise<void> {
      const client = { client_id: "admin", client_secret: "admin-secret" };
      const { access_token } = await tokens({ grant_type: "client_credentials", ...client });
      const response = await fetch(`http://127.0.0.1:${port}/admin/realms/garden/components`, {
        method: "POST",
        headers: { authorization: `Bearer ${access_token}`, "content-type": "application/json" },
        body: JSON.stringify({
          name: "rotated",
          providerId: "rsa-generated",
          providerType: "org.keycloak.keys.KeyProvider",
          config: { priority: ["200"], enabled: ["true"], active: ["true"], algorithm: ["RS256"] },
        }),
      });
      if (response.status !== 201) throw new Error(`Keycloak answered ${response.status}`);
    },

    async stop(): Promise<void> {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

interface Discovery {
  readonly issuer: string;
  readonly jwks_uri: string;
  readonly token_endpoint: string;
}

/** The discovery document, as soon as there is one. */
async function discover(realm: string, child: Bun.Subprocess): Promise<Discovery> {
  for (;;) {
    const url = `${realm}/.well-known/openid-configuration`;
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return (await response.json()) as Discovery;
    if (child.exitCode !== null) throw new Error(`Keycloak ended with ${child.exitCode}`);
    await pause(200);
  }
}
