import { expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";

import { skipped } from "../support/missing.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { failuresIn, hunksOf, linkPackages, shellIn, testsOf } from "./clone.ts";

setDefaultTimeout(4 * LONG_TEST_TIMEOUT_MS);

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
    const rename = "bun src/recipes/rename.ts meter meters /meter-events";
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
    async function takeAnew(files: readonly string[]): Promise<void> {
      expect(files.filter((file) => !changed.includes(file))).toEqual([]);
      for (const file of files)
        await run(
          `git checkout upstream ${file} && git apply --ignore-whitespace --include=${file} src/recipes/field.patch`,
        );
    }

    await takeAnew(conflicts);
    // Where the patch has changed since, a file can merge without a conflict, and no longer fit.
    const errors = await run("bun run check || true");
    const named = errors.matchAll(/^(\S+?)\(\d+,\d+\): error TS/gm);
    await takeAnew([...new Set(Array.from(named, ([, file = ""]) => file))]);

    await run("bun run db:generate && bun run check:static");
    linkPackages(fork);
    expect(await failuresIn(fork, testsOf(patch))).toEqual([]);
  },
);
