import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { failuresIn, linkPackages, repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { hunksOf, PATCHES, testsOf } from "../support/recipes.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const MIGRATIONS_TEST = "test/database/migrations.test.ts";
const GUIDES_TEST = "test/program/guides.test.ts";
/** What holds for all code: a patch may add a room's import, or a type that the module shows. */
const COMMON_TESTS = [GUIDES_TEST, "test/architecture.test.ts", "test/module/package.test.ts"];

// To mend a patch, apply those that it builds on, commit, apply it by `git apply --reject`, finish it
// by hand, and write it by `git diff --unified=1`.

describe("in the order of the page", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());
  beforeAll(async () => {
    linkPackages(copy.path);
    await Bun.$`git init --quiet`.cwd(copy.path);
  });

  test.each(PATCHES)("%s applies, passes the checks, and its own tests", async (name) => {
    const patch = readFileSync(join(ROOT, "src/recipes", name), "utf8");
    await Bun.$`git apply --ignore-whitespace src/recipes/${name}`.cwd(copy.path);
    await Bun.$`bun run fmt`.cwd(copy.path).quiet();
    if (name === "field.patch")
      await Bun.$`bun run db:generate --name fields`.cwd(copy.path).quiet();

    const { stdout, stderr, exitCode } = await Bun.$`bun run check:static`
      .cwd(copy.path)
      .quiet()
      .nothrow();
    expect([exitCode, exitCode === 0 ? "" : `${stdout}${stderr}`]).toEqual([0, ""]);
    expect(await failuresIn(copy.path, [...testsOf(patch), ...COMMON_TESTS])).toEqual([]);
  });
});

/** The tests that name a step of a new field, if the types do not. */
const NAMED: Readonly<Record<string, readonly [file: string, name: RegExp]>> = {
  "src/http/client.ts": [GUIDES_TEST, /the client in TypeScript compares the plant's fields/],
  "src/http/README.md": [GUIDES_TEST, /the client in (?:Python|Go)|http\/README.md lists the/],
  "README.md": [GUIDES_TEST, /README.md lists the plant's fields/],
  "src/plant/plant.ts": ["test/database/sqlite/sqlite_database.test.ts", /every field/],
  "src/database/sqlite/schema.ts": [MIGRATIONS_TEST, /drizzle-kit finds nothing/],
};

describe("a field", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());
  const patch = readFileSync(join(ROOT, "src/recipes/field.patch"), "utf8");

  beforeAll(async () => {
    linkPackages(copy.path);
    await Bun.$`git init --quiet && git apply --ignore-whitespace src/recipes/field.patch`.cwd(
      copy.path,
    );
    await Bun.$`bun run db:generate --name fields`.cwd(copy.path).quiet();
  });

  const steps = hunksOf(patch).filter(({ file }) => !file.startsWith("test/http/"));

  test.each(steps)("without a step in $file, something red names it (%#)", async (step) => {
    await Bun.$`git apply --reverse - < ${new Response(step.patch)}`.cwd(copy.path);
    const check = await Bun.$`bun run check`.cwd(copy.path).quiet().nothrow();
    const errors = `${check.stdout}`.split("\n").filter((line) => / error TS\d+: /.test(line));
    const [file = "", name = /^$/] = NAMED[step.file] ?? [];
    const red = errors.length > 0 ? errors : await failuresIn(copy.path, [file]);
    await Bun.$`git apply - < ${new Response(step.patch)}`.cwd(copy.path);

    const named = new RegExp(`${RegExp.escape(step.file)}|light|height|flowering|double|boolean`);
    const expected = errors.length > 0 ? named : name;
    expect(red).toContainEqual(expect.stringMatching(expected));
  });

  test("without the generated migrations, a test for each database names what lacks one", async () => {
    await Bun.$`rm -r drizzle && cp -r ${join(ROOT, "drizzle")} . && bun src/build/embed_migrations.ts`
      .cwd(copy.path)
      .quiet();
    expect(await failuresIn(copy.path, [MIGRATIONS_TEST])).toEqual(
      ["postgres", "sqlite"].map((database) =>
        expect.stringContaining(
          `the migrations of ${database} > drizzle-kit finds nothing in the schema`,
        ),
      ),
    );
  });
});
