import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = { id: 1, name: "Fern", tag: "indoor" };

test.concurrent("the first start prints a token and a curl line that works as it stands", async () => {
  await using server = await startServer();
  const [curl] = await server.stderr.until(/curl .*\n/);
  const run = Bun.spawn(["sh", "-c", curl], { stdout: "pipe", stderr: "ignore" });
  const response = await new Response(run.stdout).text();
  expect(response).toStartWith("HTTP/1.1 200 OK");
  expect(response).toEndWith('{"name":"Monstera deliciosa","tag":"indoor"}');
});

test.concurrent("a restart knows the plants and the token, and makes no other token", async () => {
  using directory = emptyDirectory();
  let token = "";
  {
    await using server = await startServer({ cwd: directory.path });
    [token] = await server.stderr.until(/plant_\w+/);
    expect((await post(server.url, FERN, { token })).status).toBe(200);
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
  }
  expect(readdirSync(directory.path)).toEqual(["plants.db"]);
  await using server = await startServer({ cwd: directory.path });
  expect((await post(server.url, FERN, { token })).status).toBe(200);
  expect((await post(server.url, { ...FERN, name: "Ivy" }, { token })).status).toBe(409);
  expect(server.stderr.text()).not.toContain("plant_");
});

test.concurrent("with AUTH_TOKENS no token is made", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: `${TOKEN},another-token-0123` } });
  expect((await post(server.url, FERN)).status).toBe(200);
  expect((await post(server.url, FERN, { token: "another-token-0123" })).status).toBe(200);
  expect((await post(server.url, FERN, { token: "unknown-token-0123" })).status).toBe(401);
  expect(server.stderr.text()).not.toContain("plant_");
});

test.concurrent("two servers that start at once on one new file both serve", async () => {
  using directory = emptyDirectory();
  const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
  const started = await Promise.all([startServer(options), startServer(options)]);
  await using one = started[0];
  await using other = started[1];
  expect((await post(one.url, FERN)).status).toBe(200);
  expect((await post(other.url, { ...FERN, name: "Ivy" })).status).toBe(409);
});

// Not beside the others: a server that stops refuses requests for a moment only.
test.each(["SIGTERM", "SIGINT"] as const)(
  "%s answers what was accepted, refuses the rest and exits 0",
  async (signal) => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    expect((await post(server.url, FERN)).status).toBe(200);
    server.child.kill(signal);
    await server.stderr.until(/Stopping/);
    const refused = await post(server.url, { id: 2, name: "Moss" });
    expect(refused.status).toBe(503);
    expect(refused.headers.get("connection")).toBe("close");
    expect(await refused.json()).toMatchObject({ error: 5033 });
    expect(await server.child.exited).toBe(0);
  },
);

test.concurrent("in production a token that is revoked, and one that is expired, are as none at all", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const expired = await runToEnd({ cwd, args: ["token", "create", "expired", "--expires", "1m"] });
  const revoked = await runToEnd({ cwd, args: ["token", "create", "revoked"] });
  expect(await runToEnd({ cwd, args: ["token", "revoke", "revoked"] })).toMatchObject({ exitCode: 0 });
  {
    using database = new Database(join(cwd, "plants.db"));
    database.run("UPDATE tokens SET expires_at = created_at WHERE name = 'expired'");
  }
  await using server = await startServer({ cwd, env: { NODE_ENV: "production" } });
  const [warning] = await server.stderr.until(/.*(?:No token is accepted|Created token).*\n/);
  expect(JSON.parse(warning)).toMatchObject({
    level: "WARN",
    message: `No token is accepted, so every call returns 401: run plant-store token create NAME --database ${join(directory.path, "plants.db")}`,
  });
  expect(server.stderr.text()).not.toContain("plant_");
  for (const { stdout } of [expired, revoked])
    expect((await post(server.url, FERN, { token: stdout.trim() })).status).toBe(401);
});

test.concurrent("in production there is no warning where a token is accepted, or JWTs are", async () => {
  const provider = { AUTH_JWKS_URL: "http://127.0.0.1:9/", AUTH_ISSUER: "me", AUTH_AUDIENCE: "plant-store" };
  for (const settings of [{ AUTH_TOKENS: TOKEN }, provider]) {
    await using server = await startServer({ env: { NODE_ENV: "production", ...settings } });
    server.child.kill("SIGTERM");
    expect(await server.stderr.end).not.toContain("No token");
  }
});

test.concurrent("a start that cannot make the first token, because an old one has its name, warns", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  expect(await runToEnd({ cwd, args: ["token", "create", "first-start"] })).toMatchObject({ exitCode: 0 });
  expect(await runToEnd({ cwd, args: ["token", "revoke", "first-start"] })).toMatchObject({ exitCode: 0 });
  await using server = await startServer({ cwd });
  await server.stderr.until(/No token is accepted, so every call returns 401/);
  expect(server.stderr.text()).not.toContain("plant_");
});

// What each refusal says is a table of ../commands/program.test.ts.
test.concurrent("a bad setting stops the start with one line and exit code 2", async () => {
  using directory = emptyDirectory();
  expect(await runToEnd({ cwd: directory.path, env: { QUEUE_LIMIT: "many" } })).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: "Cannot use QUEUE_LIMIT many: expected an integer from 1 to 9007199254740991\n",
  });
  expect(readdirSync(directory.path)).toEqual([]);
});

test.concurrent("--version and --help print on stdout, with exit code 0", async () => {
  const version = await runToEnd({ args: ["--version"] });
  expect(version).toMatchObject({ exitCode: 0, stdout: `${packageJson.version}\n`, stderr: "" });
  const help = await runToEnd({ args: ["serve", "--help"] });
  expect(help).toMatchObject({ exitCode: 0, stderr: "" });
  expect(help.stdout).toStartWith("Usage: plant-store serve [options]\n");
});

test.concurrent("CORS_ORIGINS lets a page of another origin post", async () => {
  const origin = "https://app.example.org";
  const env = { AUTH_TOKENS: TOKEN, CORS_ORIGINS: `${origin},http://localhost:5173` };
  await using server = await startServer({ env });
  const headers = { origin, "access-control-request-method": "POST" };
  const preflight = await fetch(`${server.url}/plants?x=1`, { method: "OPTIONS", headers });
  expect([preflight.status, preflight.headers.get("access-control-allow-headers")]).toEqual([
    204,
    "authorization, content-type, traceparent, tracestate, x-request-id",
  ]);
  const response = await post(server.url, undefined, { headers: { origin } });
  expect([response.status, response.headers.get("access-control-allow-origin")]).toEqual([200, origin]);
});
