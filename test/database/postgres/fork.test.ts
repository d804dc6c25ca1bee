import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";

import type * as PostgresDatabase from "../../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../../../src/database/postgres/url.ts";
import { mutate, type Mutation, repositoryCopy } from "../../support/mutant.ts";
import { fern, insertOf, moss, OPTIONAL_TEXT } from "../../support/plants.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { openDatabase, openPostgres, probe, withCluster } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

const MODULE = "src/database/postgres/postgres_database.ts";
const TAGGED = fern({ [OPTIONAL_TEXT]: "shade" });
const MOSS = moss({ id: 2n });
const WITHOUT_VALUE =
  "makes a column NOT NULL, but rows have no value for it: give the column a default, or fill it by an UPDATE before";
const TIMEOUT = { timeoutMs: TEST_TIMEOUT_MS };

/** A copy of the repository with one more migration and other changes, and its way to open a database. */
async function fork(sql: string, changes: readonly Mutation[] = []) {
  const copy = repositoryCopy();
  writeFileSync(copy.at("drizzle/postgres/0100_shade.sql"), sql);
  for (const mutation of [ENTRY, ...changes]) mutate(copy.path, mutation);
  await Bun.$`${process.execPath} ${copy.at("src/build/embed_migrations.ts")}`;

  const room = (await import(copy.at(MODULE))) as typeof PostgresDatabase;
  return {
    async openPostgres(url: PostgresUrl, options?: PostgresDatabase.PostgresOptions) {
      using reached = await room.reach(url);
      return await room.openPostgres(reached, options);
    },
    async migratePostgres(url: PostgresUrl) {
      using reached = await room.reach(url);
      return await room.migratePostgres(reached, { dryRun: false });
    },
    [Symbol.dispose]: () => copy[Symbol.dispose](),
  };
}

/** The entry of the new file, from which the build's list is made. */
const ENTRY: Mutation = {
  file: "drizzle/postgres/meta/_journal.json",
  from: "    }\n  ]",
  to: '    },\n    { "idx": 100, "version": "7", "when": 1895280020608, "tag": "0100_shade", "breakpoints": true }\n  ]',
};

describe.skipIf(skipsCluster())("a fork on PostgreSQL", () => {
  const cluster = withCluster();

  test("stores, finds and reads a field whose column has another name, which is a word of SQL", async () => {
    const renamed = { from: `${OPTIONAL_TEXT}: text()`, to: `${OPTIONAL_TEXT}: text("group")` };
    using forked = await fork(
      `ALTER TABLE "plants" RENAME COLUMN "${OPTIONAL_TEXT}" TO "group";\n`,
      [{ file: "src/database/postgres/schema.ts", ...renamed }],
    );
    await using database = await cluster().newDatabase();
    await using store = await forked.openPostgres(parsePostgresUrl(database.url));

    for (const outcome of ["added", "present"] as const)
      expect(await store.plants.add([TAGGED, MOSS], TIMEOUT)).toEqual([outcome, outcome]);
    expect(await store.plants.add([{ ...TAGGED, [OPTIONAL_TEXT]: "sun" }], TIMEOUT)).toEqual([
      "conflict",
    ]);
    await probe(store);
    expect((await Array.fromAsync(store.pages())).flat()).toEqual([TAGGED, MOSS]);
  });

  test("tells whoever reads the tables of the version before to migrate", async () => {
    using forked = await fork('ALTER TABLE "plants" ADD COLUMN "shade" text;\n');
    await using database = await cluster().newDatabase();
    const url = parsePostgresUrl(database.url);
    await (await openPostgres(url))[Symbol.asyncDispose]();

    await expect(forked.openPostgres(url, { access: "read" })).rejects.toThrow(
      `Cannot open database "${database.name}": its tables are those of an older version: run plant-store migrate --database "$DATABASE_URL"`,
    );
    await forked.migratePostgres(url);
    await (await forked.openPostgres(url, { access: "read" }))[Symbol.asyncDispose]();
  });

  test.each([
    [
      "a column that is NOT NULL and has no default",
      'ALTER TABLE "plants" ADD COLUMN "shade" text NOT NULL;\n',
      insertOf(MOSS),
      WITHOUT_VALUE,
    ],
    [
      "NOT NULL to a column that is NULL in a row",
      `ALTER TABLE "plants" ALTER COLUMN "${OPTIONAL_TEXT}" SET NOT NULL;\n`,
      insertOf(MOSS),
      WITHOUT_VALUE,
    ],
    [
      "a column whose name is taken",
      'ALTER TABLE "plants" ADD COLUMN "shade" text;\n',
      "ALTER TABLE plants ADD shade int",
      "makes a table, a column or a type that exists already: rename that one, and migrate again",
    ],
    [
      "a table whose name is taken",
      'CREATE TABLE "shades" ("id" bigint);\n',
      "CREATE TABLE shades (id int)",
      "makes a table, a column or a type that exists already: rename that one, and migrate again",
    ],
  ])("says why a migration cannot add %s", async (_, sql, before, reason) => {
    using forked = await fork(sql);
    await using database = await cluster().newDatabase();
    const url = parsePostgresUrl(database.url);
    await (await openPostgres(url))[Symbol.asyncDispose]();
    await database.run(before);

    await expect(forked.migratePostgres(url)).rejects.toThrow(
      `Cannot open database "${database.name}": migration 0100_shade ${reason}`,
    );
  });

  test("a migration that another session blocks lets plants pass, and names that session", async () => {
    using forked = await fork('ALTER TABLE "plants" ADD COLUMN "shade" text;\n');
    await using database = await openDatabase(cluster());
    const url = parsePostgresUrl(database.url);

    await using dump = database.connect();
    await dump.unsafe("SET application_name = dump");
    const [{ pid }] = await dump.unsafe("SELECT pg_backend_pid() AS pid");
    await dump.unsafe("BEGIN; LOCK TABLE plants IN ACCESS SHARE MODE").simple();

    const refusals: string[] = [];
    const opening = forked
      .openPostgres(url)
      .catch(({ message }: Error) => void refusals.push(message));
    for (let id = 1; refusals.length === 0; id++)
      expect(await database.add([fern({ id })], 5_000)).toEqual(["added"]);
    await opening;

    expect(refusals).toEqual([
      `Cannot open database "${database.name}": its tables are locked by pid ${pid} (dump): wait until that ends, and run plant-store migrate --database "$DATABASE_URL"`,
    ]);
    await dump.unsafe("ROLLBACK");
    expect(await forked.migratePostgres(url)).toMatchObject([{ tag: "0100_shade" }]);
  });
});
