import { expect, test } from "bun:test";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import type * as PlantStore from "../../src/mod.ts";
import { postPlant, TOKEN } from "../support/client.ts";
import { emptyDirectory, ROOT } from "../support/program.ts";
import { readError } from "../support/responses.ts";

// Elysia reads the source text of its hooks: a minifier changes it.
test("an app that esbuild minifies refuses bad credentials and stores plants", async () => {
  using directory = emptyDirectory();
  const outfile = join(directory.path, "bundle.mjs");
  const esbuild = [join(ROOT, "node_modules/.bin/esbuild"), "src/mod.ts", "--bundle"];
  // Only the document needs the generator.
  const output = [`--outfile=${outfile}`, "--format=esm", "--external:@elysiajs/swagger"];
  const command = [...esbuild, ...output, "--platform=node", "--log-level=error", "--minify"];
  const { exitCode, stderr } = Bun.spawnSync(command, { cwd: ROOT });
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);

  const bundle: typeof PlantStore = await import(pathToFileURL(outfile).href);
  const store = bundle.memoryStore();
  const app = bundle.createApp({
    plants: bundle.groupCommit(store),
    ready: () => store.probe(),
    authenticate: bundle.staticTokens([TOKEN]),
    renderMetrics: async () => "",
  });
  const post = (authorization: string | null) => app.fetch(postPlant(undefined, { authorization }));

  expect(await readError(await post(null))).toMatchObject({ error: 4011 });
  expect(await readError(await post("Basic eDp5"))).toMatchObject({ error: 4011 });
  expect((await post(`bearer ${TOKEN}`)).status).toBe(200);
  const metrics = new Request("http://localhost/metrics");
  expect(await readError(await app.fetch(metrics))).toMatchObject({ error: 4011 });
});
