import { expect, test } from "bun:test";

import { namesOf, sources } from "../../support/sources.ts";

test("only Citus's room knows that shards exist, and only the list of databases that Citus does", () => {
  const knowing = (word: RegExp) =>
    sources.filter(({ text }) => word.test(namesOf(text))).map(({ path }) => path);
  const outside = (path: string) => !path.startsWith("database/citus/");
  expect(knowing(/shard/i).filter(outside)).toEqual([]);
  expect(knowing(/citus/i).filter(outside)).toEqual(["database/databases.ts"]);
});
