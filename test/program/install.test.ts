import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { section } from "../support/guides.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Bun itself trusts some well-known packages; one of ours reports every installation to its maker. */
test("bun install runs no script of a dependency", async () => {
  using directory = projectToInstall();
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

/** Its summary would end with the scripts that did not run, as if something were wrong. */
test("the README's first bun install prints nothing if it succeeds", async () => {
  using directory = projectToInstall();
  const [, install = ""] = /\bbun@[\d.]+ (install[^&]*) &&/.exec(section("Quick start")) ?? [];
  const { stdout, stderr } = await Bun.$`${process.execPath} ${install.split(" ")}`
    .cwd(directory.path)
    .quiet();
  expect({ stdout: stdout.toString(), stderr: stderr.toString() }).toEqual({
    stdout: "",
    stderr: "",
  });
  expect(existsSync(directory.at("node_modules/elysia"))).toBe(true);
});

/** What `bun install` reads, in a directory of its own. */
function projectToInstall() {
  const directory = emptyDirectory();
  for (const file of [".npmrc", "package.json", "bun.lock", "bunfig.toml"]) {
    copyFileSync(join(ROOT, file), directory.at(file));
  }
  return directory;
}
