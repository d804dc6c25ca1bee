import { expect, test } from "bun:test";

import { namesOf, sources } from "../../support/sources.ts";

test("outside of its room and of Citus's, only the list of databases knows PostgreSQL", () => {
  const knowing = sources.filter(({ text }) => /postgres/i.test(namesOf(text)));
  const outside = knowing.filter(
    ({ path }) => !/^(?:database\/(?:postgres|citus)|recipes)\//.test(path),
  );
  expect(outside.map(({ path }) => path)).toEqual(["database/databases.ts"]);
});

test("a start on SQLite loads of PostgreSQL's room and of Citus's only what parses their URLs", () => {
  const loaded = new Set(["main.ts", "commands/serve.ts"]);
  for (const path of loaded) {
    const loads = sources.find((source) => source.path === path)?.loads ?? [];
    for (const { kind, path } of loads) if (kind === "import-statement") loaded.add(path);
  }

  const ofRooms = [...loaded].filter((path) => /^database\/(?:postgres|citus)\//.test(path));
  expect(ofRooms.toSorted()).toEqual([
    "database/citus/citus_adapter.ts",
    "database/postgres/postgres_adapter.ts",
    "database/postgres/url.ts",
  ]);
});
