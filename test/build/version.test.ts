import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { version } from "../../src/build/version.ts";
import { missing } from "../support/missing.ts";
import {
  emptyDirectory,
  FROM_SOURCE,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const skipsGit =
  Bun.which("git") === null && missing("the versions of commits: apt-get install git");

test.skipIf(skipsGit)("a build names its commit, except at the tag of its version", async () => {
  using checkout = await checkoutOf("1.2.3-dev");
  await git(checkout.path, "init", "--quiet");
  const dev = await commitAll(checkout.path);
  expect(await versionBuiltIn(checkout.path)).toBe(`1.2.3-dev+${dev}`);

  await setVersion(checkout.path, "1.2.3");
  expect(await versionBuiltIn(checkout.path)).toBe(`1.2.3+${dev}.dirty`);

  const release = await commitAll(checkout.path);
  expect(await versionBuiltIn(checkout.path)).toBe(`1.2.3+${release}`);

  await git(checkout.path, "tag", "v1.2.3");
  expect(await versionBuiltIn(checkout.path)).toBe("1.2.3");
});

test.skipIf(skipsGit)(
  "an unpacked archive has the package's version, even inside another repository",
  async () => {
    using other = emptyDirectory();
    await Bun.write(other.at("file"), "");
    await git(other.path, "init", "--quiet");
    await commitAll(other.path);
    using archive = await checkoutOf("1.2.3-dev", other.path);
    expect(await versionBuiltIn(archive.path)).toBe("1.2.3-dev");
  },
);

test.concurrent("--version and the log have the version of the build", async () => {
  for (const program of [undefined, FROM_SOURCE]) {
    const options = program === undefined ? {} : { program };
    const printed = await runToEnd({ ...options, args: ["--version"] });
    expect(printed).toEqual({ exitCode: 0, stdout: `${version()}\n`, stderr: "" });

    await using server = await startServer(options);
    const [line] = await server.stderr.until(/^.*listens on.*$/m);
    expect(JSON.parse(line)).toMatchObject({ version: version() });
  }
});

/** What the version is made from, in a directory of its own. */
async function checkoutOf(packageVersion: string, parent?: string) {
  const directory = emptyDirectory(parent);
  mkdirSync(directory.at("src/build"), { recursive: true });
  cpSync(join(ROOT, "src/build/version.ts"), directory.at("src/build/version.ts"));
  await setVersion(directory.path, packageVersion);
  return directory;
}

async function setVersion(checkout: string, packageVersion: string): Promise<void> {
  await Bun.write(join(checkout, "package.json"), JSON.stringify({ version: packageVersion }));
}

/** As a build has it: a literal in the place of the call. */
async function versionBuiltIn(checkout: string): Promise<string> {
  const program = join(checkout, "program.ts");
  const code = `import { version } from "./src/build/version.ts" with { type: "macro" };\nconsole.log(version());\n`;
  await Bun.write(program, code);
  return (await Bun.$`${process.execPath} run ${program}`.text()).trim();
}

async function commitAll(checkout: string): Promise<string> {
  await git(checkout, "add", "--all");
  await git(checkout, "commit", "--quiet", "-m", "Change");
  return await git(checkout, "rev-parse", "--short=7", "HEAD");
}

/** Runs Git with a name of its own: whoever runs the tests may have none, or sign what is committed. */
async function git(checkout: string, ...args: string[]): Promise<string> {
  const env = {
    ...process.env,
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_AUTHOR_NAME: "Test",
    GIT_AUTHOR_EMAIL: "test@example.org",
    GIT_COMMITTER_NAME: "Test",
    GIT_COMMITTER_EMAIL: "test@example.org",
  };

  return (await Bun.$`git -C ${checkout} ${args}`.env(env).text()).trim();
}
