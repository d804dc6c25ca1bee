import { expect, setDefaultTimeout, test } from "bun:test";

import { failuresIn, linkPackages, mutate, repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** Where the source names the fields of the record: texts that occur once. */
const NAMED: Readonly<Record<string, readonly string[]>> = {
  "src/plant/plant.ts": ["readonly name: string", "readonly tag?", "name: { kind", "tag: { kind"],
  "src/database/sqlite/schema.ts": ["name: text().notNull(),\n  tag: text()"],
  "src/database/postgres/schema.ts": ["name: text().notNull(),\n  tag: text()"],
  "drizzle/sqlite/0000_plants_and_tokens.sql": ["`name` text NOT NULL,\n\t`tag` text"],
  "drizzle/postgres/0000_plants_and_tokens.sql": ['"name" text NOT NULL,\n\t"tag" text'],
  "src/http/plants.ts": ["name: storableText", "tag: t.Optional"],
  "src/http/client.ts": ['["name", "tag"]'],
  "test/support/plants.ts": ['TEXT = "name"', 'OPTIONAL_TEXT = "tag"'],
};

/** Tests that send, store, read and print plants in every way. */
const TESTS = [
  "test/commands",
  "test/database/contract",
  "test/database/postgres/postgres_plants.test.ts",
  "test/database/postgres/tables_verifier.test.ts",
  "test/database/sqlite",
  "test/http",
  "test/plant",
];

test("a record with other fields needs no change of a test beside that of support/plants.ts", async () => {
  using copy = repositoryCopy();
  linkPackages(copy.path);
  for (const [file, places] of Object.entries(NAMED)) {
    for (const from of places) {
      const to = from.replace(/\bname\b/, "sensor").replace(/\btag\b/, "note");
      mutate(copy.path, { file, from, to });
    }
  }

  const check = await Bun.$`bun run check`.cwd(copy.path).quiet().nothrow();
  expect(`${check.stdout}`.match(/^.* error TS\d+: .*$/gm)).toBeNull();
  expect(await failuresIn(copy.path, TESTS)).toEqual([]);
});
