import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { fern, jsonOf } from "../support/plants.ts";
import {
  emptyDirectory,
  FROM_SOURCE,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent("the build is one file, and does not tell where it was built", async () => {
  const [path] = executable();
  expect(readdirSync(dirname(path))).toEqual(["plant-store"]);
  const program = Buffer.from(await Bun.file(path).bytes());
  expect(program.includes("POST /plants")).toBe(true);
  expect(program.includes(`${ROOT}/`)).toBe(false);
});

test.concurrent("the executable serves Swagger UI and its document from inside", async () => {
  await using server = await startServer();
  for (const file of ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"]) {
    const response = await fetch(`${server.url}/swagger/${file}`);
    const original = Bun.file(join(ROOT, "node_modules/swagger-ui-dist", file));
    expect(response.status).toBe(200);
    expect(Buffer.from(await response.bytes()).equals(Buffer.from(await original.bytes()))).toBe(
      true,
    );
  }

  const fromSource = await runToEnd({ program: FROM_SOURCE, args: ["openapi"] });
  // Only a served document can name its server by a relative URL.
  expect(await (await fetch(`${server.url}/swagger/json`)).json()).toEqual({
    ...JSON.parse(fromSource.stdout),
    servers: [{ url: "..", description: "This server" }],
  });
});

test.concurrent(
  "the executable reads neither .env nor bunfig.toml of the working directory",
  async () => {
    using directory = emptyDirectory();
    writeFileSync(directory.at(".env"), "DOCS=off\nAUTH_TOKENS=from-dot-env-0123456789\n");
    writeFileSync(directory.at("bunfig.toml"), 'preload = ["./preload.ts"]\n');
    writeFileSync(directory.at("preload.ts"), 'await Bun.write("preloaded", "");\n');

    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    expect((await fetch(`${server.url}/swagger`)).status).toBe(200);
    expect((await post(server.url)).status).toBe(200);
    expect((await post(server.url, undefined, { token: "from-dot-env-0123456789" })).status).toBe(
      401,
    );
    expect(existsSync(directory.at("preloaded"))).toBe(false);
  },
);

test("from source the server serves and checks its database, with the settings of .env; and the commands read it", async () => {
  using directory = emptyDirectory();
  const options = { program: FROM_SOURCE, cwd: directory.path };
  writeFileSync(directory.at(".env"), "AUTH_TOKENS=from-dot-env-0123456789\n");
  const plant = jsonOf(fern({ id: 9223372036854775807n }));

  {
    await using server = await startServer(options);
    expect((await post(server.url, plant, { token: "from-dot-env-0123456789" })).status).toBe(200);
    expect((await fetch(`${server.url}/swagger/swagger-ui-bundle.js`)).status).toBe(200);
    await server.stderr.until(/"Integrity check passed"/);
    expect(await server.stop()).toBe(0);
  }

  expect(await runToEnd({ ...options, args: ["backup", "copy.db"] })).toMatchObject({
    exitCode: 0,
  });

  const exported = await runToEnd({ ...options, args: ["export", "--database", "file:copy.db"] });
  expect(exported).toEqual({ exitCode: 0, stdout: `${plant}\n`, stderr: "" });
});
