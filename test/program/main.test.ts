import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";

import { EXAMPLE } from "../../src/http/plants.ts";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, membersOf, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
  USER,
} from "../support/program.ts";
import { readError } from "../support/responses.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern({ [OPTIONAL_TEXT]: "indoor" });

/** For how long each token of a database is accepted, in milliseconds; `null` for ever. */
async function lifetimes(cwd: string): Promise<(number | null)[]> {
  const { stdout } = await runToEnd({ cwd, args: ["token", "list", "--json"] });
  const tokens = JSON.parse(stdout) as { created: string; expires: string | null }[];
  return tokens.map(({ created, expires }) =>
    expires === null ? null : Date.parse(expires) - Date.parse(created),
  );
}

test.concurrent.skipIf(skipsWithout("curl", "curl"))(
  "the first start prints a token for 24 hours, and a curl line that works as it stands",
  async () => {
    await using server = await startServer();
    const [curl] = await server.stderr.until(/curl .*\n/);
    const { stdout } = await runToEnd({ program: ["sh", "-c", curl] });
    expect(stdout).toStartWith("HTTP/1.1 200 OK");
    expect(stdout).toEndWith(`{${membersOf(EXAMPLE)}}`);
    expect(server.stderr.text()).toContain("It may be in a log now, so it expires in 24 hours.");
    expect(await lifetimes(server.cwd)).toEqual([86_400_000]);
  },
);

test("the first token does not expire if it is printed on a terminal", async () => {
  using directory = emptyDirectory();
  const stop = new AbortController();
  let printed = "";

  const stderr = (text: string) => {
    if (!text.includes("curl")) return;
    printed = text;
    stop.abort();
  };

  const environment = { PORT: "0", DATABASE_URL: directory.at("plants.db") };
  const options = { isTerminal: true, stop: stop.signal, stderr };
  expect(await runCommand([], environment, options)).toMatchObject({ exitCode: 0 });
  expect(printed).toContain("Created token");
  expect(printed).not.toContain("expires");
  expect(await lifetimes(directory.path)).toEqual([null]);
});

test.concurrent("two servers that start at once on one new file both serve", async () => {
  using directory = emptyDirectory();
  const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
  const started = await Promise.all([startServer(options), startServer(options)]);
  await using one = started[0];
  await using other = started[1];
  expect((await post(one.url, FERN)).status).toBe(200);
  expect((await post(other.url, { ...FERN, [TEXT]: "Ivy" })).status).toBe(409);
});

test.concurrent.skipIf(skipsWithout("strace", "strace"))(
  "a server that is slow to create its file leaves what another one has stored in it meanwhile",
  async () => {
    using directory = emptyDirectory();
    const path = directory.at("plants.db");
    const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
    // With -D the process is our child, and not that of strace.
    const late = ["strace", "-D", "-f", "-o", "/dev/null", "-P", path, "-e", LATE_TRUNCATE];
    const slow = startServer({ ...options, program: [...late, ...executable()] });

    while (!existsSync(path)) await Bun.sleep(1);
    await using other = await startServer(options);
    expect((await post(other.url, FERN)).status).toBe(200);

    await using one = await slow;
    expect((await post(one.url, { ...FERN, [TEXT]: "Ivy" })).status).toBe(409);
    expect((await post(other.url, moss({ id: 2n }))).status).toBe(200);
  },
);

/**
 * By more than a start takes, and by less than another process waits for a lock: a checkpoint
 * truncates the file, too, and holds the lock meanwhile.
 */
const LATE_TRUNCATE = "inject=ftruncate:delay_enter=3000000:when=1";

// Not beside the others: a server that stops refuses requests for a moment only. On a busy machine the
// requests may come after it, and are sent to another server.
test("SIGTERM refuses new requests with 503, /readyz among them, and exits 0", async () => {
  for (let triesLeft = 5; ; triesLeft--) {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    server.child.kill("SIGTERM");
    await server.stderr.until(/Stopping/);
    const sent = [post(server.url, moss({ id: 2n })), fetch(`${server.url}/readyz`)];
    const responses = await Promise.all(sent).catch(() => []);
    expect(await server.child.exited).toBe(0);

    const [refused, ready] = responses;
    if (refused === undefined || ready === undefined) {
      expect(triesLeft).toBeGreaterThan(0);
      continue;
    }
    expect(refused.headers.get("connection")).toBe("close");
    for (const response of responses)
      expect(await readError(response)).toMatchObject({ status: 503, error: 5033 });
    return;
  }
});

test.concurrent(
  "with revoked or expired tokens only, no other one is made, and a warning says what to do",
  async () => {
    using directory = emptyDirectory();
    const cwd = directory.path;
    const token = (...args: string[]) => runToEnd({ cwd, args: ["token", ...args] });
    const tokens = [await token("create", "expired", "--expires", "1m")];

    {
      using database = new Database(join(cwd, "plants.db"));
      database.run("UPDATE tokens SET expires_at = created_at");
    }

    // Outside production, a token of this name is in the way of the first one.
    for (const [name, env] of [
      ["revoked", { NODE_ENV: "production" }],
      ["first-start", {}],
    ] as const) {
      tokens.push(await token("create", name));
      expect(await token("revoke", name)).toMatchObject({ exitCode: 0 });

      await using server = await startServer({ cwd, env });
      const [warning] = await server.stderr.until(/.*(?:No token is accepted|Created token).*\n/);
      expect(JSON.parse(warning)).toMatchObject({
        level: "WARN",
        message: `No token is accepted, so every call returns 401: run as ${USER}: plant-store token create NAME --database ${join(cwd, "plants.db")}`,
      });
      expect(server.stderr.text()).not.toContain("plant_");

      for (const { stdout } of tokens) {
        expect((await post(server.url, FERN, { token: stdout.trim() })).status).toBe(401);
      }
    }
  },
);

test.concurrent.each([
  [" production  ", /No token is accepted/],
  // Bun ends the executable before our code: the guide names its message.
  ["production\r", /defines\.json/],
])("NODE_ENV=%j creates no token", async (NODE_ENV, says) => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  await runToEnd({ cwd, args: ["migrate"] });

  await using program = start({ cwd, args: ["--port", "0"], env: { NODE_ENV } });
  await program.stderr.until(says);
  program.child.kill("SIGTERM");
  expect(await program.stderr.end).not.toMatch(/plant_[0-9A-Za-z]{38}/);
});

test.concurrent("in production there is no warning if a token is accepted", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  await runToEnd({ cwd, args: ["migrate"] });

  const env = { NODE_ENV: "production", AUTH_TOKENS: TOKEN };
  await using server = await startServer({ cwd, env });
  server.child.kill("SIGTERM");
  expect(await server.stderr.end).not.toContain("No token");
});

test.concurrent("CORS_ORIGINS lets a page of another origin post", async () => {
  const origin = "https://app.example.org";
  const env = { AUTH_TOKENS: TOKEN, CORS_ORIGINS: `${origin},http://localhost:5173` };
  await using server = await startServer({ env });
  const headers = { origin, "access-control-request-method": "POST" };

  expect((await fetch(`${server.url}/plants?x=1`, { method: "OPTIONS", headers })).status).toBe(
    204,
  );

  const response = await post(server.url, undefined, { headers: { origin } });
  expect([response.status, response.headers.get("access-control-allow-origin")]).toEqual([
    200,
    origin,
  ]);
});
