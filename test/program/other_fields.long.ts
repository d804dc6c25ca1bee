import { expect, setDefaultTimeout, test } from "bun:test";

import { failureOnTerminal, REQUIRING, STEPS } from "../support/field_steps.ts";
import { blocks } from "../support/guides.ts";
import { failuresIn, linkPackages, mutate, repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** As long as the old ones: so the rows of the guides keep their width, and can be found. */
const NEW_NAMES: Readonly<Record<string, string>> = { name: "site", tag: "use" };

/** Tests that send, store, read and print plants in every way, the examples, and the programs of the benchmark. */
const TESTS = [
  "test/bench/contenders.long.ts",
  "test/bench/postgres_servers.long.ts",
  "test/commands",
  "test/database/contract",
  "test/database/postgres/postgres_plants.test.ts",
  "test/database/postgres/tables_verifier.test.ts",
  "test/database/sqlite",
  "test/group_commit",
  "test/http",
  "test/module/package.test.ts",
  "test/plant",
  "test/program/guides.test.ts",
];

test("other fields, by the guide's commands, need no change of a test or an example by hand", async () => {
  using copy = repositoryCopy();
  linkPackages(copy.path);
  // `git ls-files` lists what has been added.
  await Bun.$`git init --quiet && git add README.md src test`.cwd(copy.path).quiet();
  const [commands = "", , require = ""] = blocks("Change a field", "bash");
  const rename = async () => {
    for (const [from, to] of Object.entries(NEW_NAMES)) {
      const those = commands.replace("OLD=light NEW=brightness", `OLD=${from} NEW=${to}`);
      expect(await failureOnTerminal(copy.path, those)).toBe("");
    }
  };

  await rename();
  for (const { file, insert } of STEPS)
    for (const [before, added] of Object.entries(insert)) {
      const from = before.replace(/\bname\b|\btag\b/g, (field) => NEW_NAMES[field] ?? field);
      mutate(copy.path, { file, from, to: from + added });
    }
  for (const { file, replace } of REQUIRING)
    for (const [from, to] of Object.entries(replace)) mutate(copy.path, { file, from, to });
  for (const _ of ["at first", "for the lines of a later version"])
    expect(await failureOnTerminal(copy.path, require)).toBe("");

  // A later version brings lines with the old names.
  const file = "src/group_commit/group_commit.ts";
  mutate(copy.path, { file, from: '{ id: 2n, site: "Moss"', to: '{ id: 2n, name: "Moss"' });
  await rename();

  const check = await Bun.$`bun run check`.cwd(copy.path).quiet().nothrow();
  expect(`${check.stdout}`.match(/^.* error TS\d+: .*$/gm)).toBeNull();
  expect(await failuresIn(copy.path, TESTS)).toEqual([]);
});
