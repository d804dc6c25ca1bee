import { expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";

import { skipped } from "../support/missing.ts";
import { failuresIn, failuresOfOk, linkPackages, repositoryCopy } from "../support/mutant.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  temporaryDirectory,
} from "../support/program.ts";
import { hunksOf, PATCHES, testsOf } from "../support/recipes.ts";

setDefaultTimeout(4 * LONG_TEST_TIMEOUT_MS);

const METER = ["meter", "meters", "/meter-events"];

/** A shell in a directory. Rejects with what a command prints if it fails. */
function shellIn(cwd: string) {
  return async (script: string): Promise<string> => {
    const { exitCode, stdout, stderr } = await Bun.$`bash -euo pipefail -c ${script}`
      .cwd(cwd)
      .env({ ...process.env, ...AUTHOR, TMPDIR: temporaryDirectory() })
      .quiet()
      .nothrow();
    if (exitCode !== 0) throw new Error(`${script}\n${stdout}${stderr}`);
    return stdout.toString();
  };
}

const AUTHOR = {
  GIT_AUTHOR_NAME: "Fork",
  GIT_AUTHOR_EMAIL: "fork@example.org",
  GIT_COMMITTER_NAME: "Fork",
  GIT_COMMITTER_EMAIL: "fork@example.org",
};

/** Commits a copy of the repository, as a clone of it is. */
async function commitCopy(root: string) {
  const run = shellIn(root);
  // A folder that `.gitignore` names is a link here, which it does not.
  await run("git init --quiet && echo node_modules >> .git/info/exclude");
  await run("git add --all && git commit --quiet --message Begin");
  return run;
}

/** Writes the migrations of a renamed field on a terminal, and chooses that its column was renamed. */
async function renameColumn(root: string, name: string): Promise<void> {
  let printed = "";
  let asked = "";
  const decoder = new TextDecoder();
  const run = Bun.spawn(["bun", "run", "db:generate", "--name", name], {
    cwd: root,
    terminal: {
      cols: 100,
      rows: 40,
      data(terminal, bytes) {
        const text = Bun.stripANSI(decoder.decode(bytes, { stream: true }));
        printed += text;
        asked += text;
        const isCreating = /❯ \+ .*create column/.test(asked);
        if (!isCreating && !/❯ ~ .*rename column/.test(asked)) return;
        asked = "";
        terminal.write(isCreating ? "\u001B[B" : "\r");
      },
    },
  });
  if ((await run.exited) !== 0) throw new Error(printed);
}

test("with another record and other fields, all that `bun run ok` runs is green", async () => {
  using copy = repositoryCopy();
  linkPackages(copy.path);
  const run = await commitCopy(copy.path);

  await run(`bun src/recipes/rename.ts ${METER.join(" ")}`);
  await run("git add --all && git apply --ignore-whitespace src/recipes/field.patch");
  await run("bun run db:generate --name fields");
  for (const [from, to] of Object.entries({ name: "label", tag: "unit" })) {
    await run(`bun src/recipes/rename_field.ts ${from} ${to}`);
    await renameColumn(copy.path, to);
  }
  await run("git add --all && bun test/database/fixtures/make.ts");
  await run("bun test/program/compatibility.ts && bun run fmt");

  expect(await failuresOfOk(copy.path)).toEqual([]);
  const { stdout } = await Bun.$`git grep --ignore-case --name-only plant -- . :!LICENSE`
    .cwd(copy.path)
    .quiet()
    .nothrow();
  expect(stdout.toString()).toBe("");
});

test.each([["invoice", "invoices", "/invoices"], METER])(
  "as %j, each patch applies in the order of the page, and passes its own tests",
  async (...names) => {
    using copy = repositoryCopy();
    linkPackages(copy.path);
    const run = await commitCopy(copy.path);
    await run(`bun src/recipes/rename.ts ${names.join(" ")}`);

    const [noun = ""] = names;
    const error = `${noun.charAt(0).toUpperCase()}${noun.slice(1)}StoreError`;
    await run(`git grep --quiet "class ${error}" src/errors.ts`);

    const tests = ["test/program/guides.test.ts"];
    for (const name of PATCHES) {
      const file = `src/recipes/${name}`;
      await run(`git apply --ignore-whitespace ${file} && bun run fmt`);
      tests.push(...testsOf(readFileSync(join(copy.path, file), "utf8")));
    }
    await run("bun run db:generate --name fields && bun run check:static");
    expect(await failuresIn(copy.path, tests)).toEqual([]);
  },
);

test("a name that the code uses is reported, and a wrong one refused", async () => {
  using copy = repositoryCopy();
  await commitCopy(copy.path);
  const rename = (...names: string[]) =>
    Bun.$`bun src/recipes/rename.ts ${names}`.cwd(copy.path).quiet().nothrow();

  const refused = await rename("Meter", "meters", "/meters");
  expect([refused.exitCode, refused.stderr.toString()]).toEqual([
    2,
    expect.stringMatching(/^Usage: bun src\/recipes\/rename.ts NOUN PLURAL \/PATH\n/),
  ]);

  const clashing = await rename("token", "tokens", "/tokens");
  expect(clashing.exitCode).not.toBe(0);
  expect(clashing.stdout.toString()).toMatch(/^"tokens" is already in src\/\S+ and \d+ more: /m);
});

/** The first version that has the recipes: a fork may be as old as that. */
const [OLDEST = ""] = (
  await Bun.$`git log --diff-filter=A --format=%H -- src/recipes/rename.ts`
    .cwd(ROOT)
    .quiet()
    .nothrow()
)
  .text()
  .trim()
  .split("\n")
  .slice(-1);

test.skipIf(OLDEST === "" && skipped("a merge of a later version: this clone has no history"))(
  "a fork of the first version that has the recipes merges this one without a conflict in code",
  async () => {
    using home = emptyDirectory();
    const at = shellIn(home.path);
    await at(`git clone --quiet --bare ${ROOT} origin.git`);
    await at(`git -C origin.git update-ref refs/heads/main $(git -C ${ROOT} rev-parse HEAD)`);
    await at("git clone --quiet --no-checkout origin.git fork");
    const fork = home.at("fork");
    const run = shellIn(fork);

    await run(`git switch --quiet --create upstream ${OLDEST}`);
    symlinkSync(join(ROOT, "node_modules"), join(fork, "node_modules"));
    await run("echo node_modules >> .git/info/exclude");
    const rename = `bun src/recipes/rename.ts ${METER.join(" ")}`;
    await run(`${rename} && git add --all && git commit --quiet --message Rename`);
    await run(
      "git switch --quiet --create mine && git apply --ignore-whitespace src/recipes/field.patch",
    );
    await run("bun run db:generate --name fields && git add --all && git commit --quiet -m Fields");

    await run("git switch --quiet upstream && git read-tree -u --reset origin/main");
    await run(`${rename} && git add --all && git commit --quiet --message Later --allow-empty`);
    await run("git switch --quiet mine && git merge --quiet upstream || true");

    const conflicts = (await run("git diff --name-only --diff-filter=U")).split("\n").slice(0, -1);
    const patch = readFileSync(join(fork, "src/recipes/field.patch"), "utf8");
    const changed = hunksOf(patch).map(({ file }) => file);
    expect(conflicts.filter((file) => !changed.includes(file))).toEqual([]);
    for (const file of conflicts)
      await run(
        `git checkout --theirs ${file} && git apply --ignore-whitespace --include=${file} src/recipes/field.patch`,
      );

    await run("bun run db:generate && bun run check:static");
    linkPackages(fork);
    expect(await failuresIn(fork, testsOf(patch))).toEqual([]);
  },
);
