import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { post, TOKEN } from "../support/client.ts";
import { installPackage } from "../support/installed_package.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, ROOT, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("bunx plant-store runs from the packed tarball, and finds there all that it needs", async () => {
  using directory = await installPackage();
  const bunx = [process.execPath, "x", "--no-install", "plant-store"];
  const version = await runToEnd({ program: bunx, cwd: directory.path, args: ["--version"] });
  expect(version).toEqual({ exitCode: 0, stdout: `${packageJson.version}\n`, stderr: "" });

  // Without bunx in between, which would be killed in the place of the server.
  const program = [process.execPath, join(directory.path, "node_modules/.bin/plant-store")];
  const env = { AUTH_TOKENS: TOKEN };
  await using server = await startServer({ program, cwd: directory.path, env });
  const response = await post(server.url);
  expect({ status: response.status, body: await response.json() }).toEqual({ status: 200, body: { name: "Fern" } });
  expect((await fetch(`${server.url}/swagger`)).status).toBe(200);
});

/** Bun itself trusts some well-known packages; one of ours reports every installation to its maker. */
test("bun install runs no script of a dependency", async () => {
  using directory = emptyDirectory();
  for (const file of ["package.json", "bun.lock", "bunfig.toml"]) {
    copyFileSync(join(ROOT, file), join(directory.path, file));
  }
  // Every install script of a dependency is for Node.
  const bin = join(directory.path, "bin");
  mkdirSync(bin);
  await Bun.write(join(bin, "node"), `#!/bin/sh\necho "$PWD: $*" >> "${directory.path}/ran"\n`);
  chmodSync(join(bin, "node"), 0o755);
  const env = { ...process.env, PATH: `${bin}:${process.env["PATH"]}` };
  const install = Bun.spawn([process.execPath, "install", "--frozen-lockfile"], {
    cwd: directory.path,
    env,
    stdout: "ignore",
    stderr: "pipe",
  });
  const stderr = await new Response(install.stderr).text();
  expect({ exitCode: await install.exited, stderr }).toMatchObject({ exitCode: 0 });
  expect(existsSync(join(directory.path, "node_modules/@scarf/scarf/report.js"))).toBe(true);
  expect(existsSync(join(directory.path, "ran"))).toBe(false);
});
