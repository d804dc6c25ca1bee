import { expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, exitCodeOf, FROM_SOURCE, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("from source a server keeps plants over a restart, checks them beside, and serves Swagger UI", async () => {
  using directory = emptyDirectory();
  const options = { program: FROM_SOURCE, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
  {
    await using server = await startServer(options);
    expect((await post(server.url)).status).toBe(200);
    await server.stderr.until(/"Integrity check passed"/);
    server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(0);
  }
  await using server = await startServer(options);
  expect((await post(server.url, '{"id": 1, "name": "Ivy"}')).status).toBe(409);
  expect((await fetch(`${server.url}/swagger/swagger-ui-bundle.js`)).status).toBe(200);
});

test("from source the commands work on a database that they make", async () => {
  using directory = emptyDirectory();
  const call = (...args: string[]) => runToEnd({ program: FROM_SOURCE, cwd: directory.path, args });
  writeFileSync(join(directory.path, "plants.ndjson"), '{"id":9223372036854775807,"name":"Fern"}\n');
  expect(await call("import", "plants.ndjson")).toMatchObject({
    exitCode: 0,
    stderr: "1 added, 0 already there, 0 refused\n",
  });
  expect(await call("backup", "copy.db")).toMatchObject({ exitCode: 0 });
  expect(await call("check", "--database", "file:copy.db")).toMatchObject({ exitCode: 0 });
  expect(await call("export", "--database", "file:copy.db")).toMatchObject({
    exitCode: 0,
    stdout: '{"id":9223372036854775807,"name":"Fern"}\n',
  });
});

test("from source the working directory's .env is read", async () => {
  using directory = emptyDirectory();
  writeFileSync(join(directory.path, ".env"), "AUTH_TOKENS=from-dot-env-0123456789\n");
  await using server = await startServer({ program: FROM_SOURCE, cwd: directory.path });
  expect((await post(server.url, undefined, { token: "from-dot-env-0123456789" })).status).toBe(200);
});
