import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { commitCopy, failuresIn, hunksOf, linkPackages, PATCHES, testsOf } from "./clone.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const MIGRATIONS_TEST = "test/database/migrations.test.ts";
const GUIDES_TEST = "test/program/guides.test.ts";

// To mend a patch, apply those that it builds on, commit, apply it by `git apply --reject`, finish it
// by hand, and write it by `git diff --unified=1`.

describe("for invoices, in the order of the page", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());
  let run: Awaited<ReturnType<typeof commitCopy>>;

  beforeAll(async () => {
    linkPackages(copy.path);
    run = await commitCopy(copy.path);
    await run("bun src/recipes/rename.ts invoice invoices /invoices");
    await run('git grep --quiet "class InvoiceStoreError" src/errors.ts');
  });

  test.each(PATCHES)("%s applies, passes the checks, and its own tests", async (name) => {
    const file = `src/recipes/${name}`;
    await run(`git apply --ignore-whitespace ${file} && bun run fmt`);
    if (name === "field.patch") await run("bun run db:generate --name fields");
    await run("bun run check:static");

    // The guides and the rooms' imports hold for all code.
    const tests = testsOf(readFileSync(join(copy.path, file), "utf8"));
    tests.push(GUIDES_TEST, "test/architecture.test.ts");
    expect(await failuresIn(copy.path, tests)).toEqual([]);
  });

  test("the module still exports the types that it names", async () => {
    const name = "the types that the module's declarations name are also exported";
    expect(await failuresIn(copy.path, ["test/module/package.test.ts"], name)).toEqual([]);
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

/** The project of `src/` alone: a third of the time. */
const SOURCES = "src/tsconfig.sources.json";

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
    await Bun.write(
      join(copy.path, SOURCES),
      '{ "extends": "../tsconfig.json", "include": ["."] }',
    );
  });

  /** The type errors that leaving out a step of this file makes: one of a room says it without the tests. */
  async function typeErrors(file: string): Promise<string[]> {
    if (!file.endsWith(".ts")) return [];
    const project = file.startsWith("src/") ? SOURCES : "tsconfig.json";
    const { stdout } = await Bun.$`bun check --no-script -p ${project}`
      .cwd(copy.path)
      .quiet()
      .nothrow();
    return stdout
      .toString()
      .split("\n")
      .filter((line) => / error TS\d+: /.test(line));
  }

  const steps = hunksOf(patch).filter(({ file }) => !file.startsWith("test/http/"));

  test.each(steps)("without a step in $file, something red names it (%#)", async (step) => {
    await Bun.$`git apply --reverse - < ${new Response(step.patch)}`.cwd(copy.path);
    const errors = await typeErrors(step.file);
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
