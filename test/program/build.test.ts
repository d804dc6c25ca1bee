import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { emptyDirectory, FROM_SOURCE, TEST_TIMEOUT_MS, ROOT, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent("the build is one file, and it runs in an empty directory", async () => {
  expect(readdirSync(dirname(executable()[0]))).toEqual(["plant-store"]);
  await using server = await startServer();
  const [token] = await server.stderr.until(/plant_\w+/);
  const response = await post(server.url, '{"id": 9223372036854775807, "name": "Fern"}', { token });
  expect({ status: response.status, body: await response.text() }).toEqual({ status: 200, body: '{"name":"Fern"}' });
});

test.concurrent("the executable does not tell where it was built", async () => {
  const program = Buffer.from(await Bun.file(executable()[0]).bytes());
  expect(program.includes("POST /plants")).toBe(true);
  expect(program.indexOf(`${ROOT}/`)).toBe(-1);
});

test.concurrent("the executable serves Swagger UI and its document from inside", async () => {
  using directory = emptyDirectory();
  await using server = await startServer({ cwd: directory.path });
  for (const file of ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"]) {
    const response = await fetch(`${server.url}/swagger/${file}`);
    const original = Bun.file(join(ROOT, "node_modules/swagger-ui-dist", file));
    expect(response.status).toBe(200);
    expect(Buffer.from(await response.bytes()).equals(Buffer.from(await original.bytes()))).toBe(true);
  }
  const fromSource = await runToEnd({ program: FROM_SOURCE, cwd: directory.path, args: ["openapi"] });
  // Only a served document can name its server by a relative URL.
  expect(await (await fetch(`${server.url}/swagger/json`)).json()).toEqual({
    ...JSON.parse(fromSource.stdout),
    servers: [{ url: "..", description: "This server" }],
  });
});

test.concurrent("the executable reads neither .env nor bunfig.toml of the working directory", async () => {
  using directory = emptyDirectory();
  writeFileSync(join(directory.path, ".env"), "DOCS=off\nAUTH_TOKENS=from-dot-env-0123456789\n");
  writeFileSync(join(directory.path, "bunfig.toml"), 'preload = ["./preload.ts"]\n');
  writeFileSync(join(directory.path, "preload.ts"), 'await Bun.write("preloaded", "");\n');
  await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
  expect((await fetch(`${server.url}/swagger`)).status).toBe(200);
  expect((await post(server.url)).status).toBe(200);
  expect((await post(server.url, undefined, { token: "from-dot-env-0123456789" })).status).toBe(401);
  expect(existsSync(join(directory.path, "preloaded"))).toBe(false);
});

test.concurrent("the executable's errors tell nothing more when NODE_ENV is not set", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
  const responses = await Promise.all([post(server.url, "{"), post(server.url, "[]"), fetch(`${server.url}/nowhere`)]);
  const bodies = await Promise.all(responses.map((response) => response.json() as Promise<object>));
  expect(bodies.map((body) => Object.keys(body))).toEqual([1, 2, 3].map(() => ["error", "message"]));
  expect(bodies.map((body) => "error" in body && body.error)).toEqual([4001, 4002, 4041]);
});
