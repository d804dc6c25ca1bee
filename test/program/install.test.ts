import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Bun itself trusts some well-known packages; one of ours reports every installation to its maker. */
test("bun install runs no script of a dependency", async () => {
  using directory = emptyDirectory();
  for (const file of ["package.json", "bun.lock", "bunfig.toml"]) {
    copyFileSync(join(ROOT, file), directory.at(file));
  }
  // Every install script of a dependency is for Node.
  const bin = directory.at("bin");
  mkdirSync(bin);
  await Bun.write(join(bin, "node"), `#!/bin/sh\necho "$PWD: $*" >> "${directory.path}/ran"\n`);
  chmodSync(join(bin, "node"), 0o755);
  const env = { ...process.env, PATH: `${bin}:${process.env["PATH"]}` };
  await Bun.$`${process.execPath} install --frozen-lockfile`.cwd(directory.path).env(env).quiet();
  expect(existsSync(directory.at("node_modules/@scarf/scarf/report.js"))).toBe(true);
  expect(existsSync(directory.at("ran"))).toBe(false);
});
