import { expect, test } from "bun:test";
import { basename } from "node:path";

import { namesOf, sources } from "../../support/sources.ts";

test("only Citus's room knows that shards exist, and only the list of databases that Citus does", () => {
  const knowing = (word: RegExp) =>
    sources.filter(({ text }) => word.test(namesOf(text))).map(({ path }) => path);
  const outside = (path: string) => !path.startsWith("database/citus/");
  expect(knowing(/shard/i).filter(outside)).toEqual([]);
  expect(knowing(/citus/i).filter(outside)).toEqual(["database/databases.ts"]);
});

test("Citus's room enters PostgreSQL's by these files only", () => {
  const targets = sources
    .filter(({ path }) => path.startsWith("database/citus/"))
    .flatMap(({ imports }) => imports.filter((target) => target.startsWith("database/postgres/")));
  const files = targets.map((target) => basename(target, ".ts"));

  const entered = [
    "connection",
    "errors",
    "pages",
    "pool",
    "postgres_adapter",
    "postgres_database",
    "postgres_plants",
    "schema",
    "session",
    "url",
  ];
  expect(new Set(files)).toEqual(new Set(entered));
});
