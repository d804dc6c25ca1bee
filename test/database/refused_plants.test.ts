/** What an operator's own constraint, index or trigger refuses fails alone, on every database. */
import { Database } from "bun:sqlite";
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { adapterOf } from "../../src/database/databases.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { fern, insertOf, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Refused by each of the tables below, and not a plant of {@linkcode OTHERS}. */
const REFUSED = fern({ id: 13n, [TEXT]: "Moss", [OPTIONAL_TEXT]: "x".repeat(99) });
const OTHERS = range(1, 10).map((id) => fern({ id: BigInt(id), [TEXT]: `Fern ${id}` }));

/** Adds all of them in one batch, with the refused one among them, and gives what it rejects with. */
async function refusalIn(url: string, change: () => unknown): Promise<unknown> {
  await using database = await adapterOf(url).openForServing({
    makeQueue: (store, maxInFlight) => groupCommit(store, { maxInFlight }),
    create: true,
  });
  await change();

  const batch: NewPlant[] = OTHERS.toSpliced(6, 0, REFUSED);
  const results = await Promise.allSettled(batch.map((plant) => database.plants.add(plant)));
  const [refused] = results.splice(6, 1);

  expect(results).toEqual(OTHERS.map(() => ({ status: "fulfilled", value: "added" })));
  // The store goes on.
  for (const plant of OTHERS) expect(await database.plants.add(plant)).toBe("present");
  return refused;
}

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();

  const raise = (code: string) => [
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'not for sale' USING ERRCODE = '${code}'; END $$`,
    `CREATE TRIGGER refuse BEFORE INSERT ON plants FOR EACH ROW WHEN (NEW.id = 13) EXECUTE FUNCTION refuse()`,
  ];

  test.each([
    [
      "a constraint",
      [`ALTER TABLE plants ADD CONSTRAINT short CHECK (length("${OPTIONAL_TEXT}") < 99)`],
      'refused by constraint "short" of table "plants" (23514)',
    ],
    [
      "a unique index",
      [`CREATE UNIQUE INDEX by_text ON plants ("${TEXT}")`, insertOf(moss({ id: 12 }))],
      'refused by constraint "by_text" of table "plants" (23505)',
    ],
    [
      "the key of a trigger's table",
      [
        "CREATE TABLE ledger (id bigint PRIMARY KEY)",
        "INSERT INTO ledger VALUES (13)",
        `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN INSERT INTO ledger VALUES (NEW.id); RETURN NEW; END $$`,
        "CREATE TRIGGER note AFTER INSERT ON plants FOR EACH ROW EXECUTE FUNCTION note()",
      ],
      'refused by constraint "ledger_pkey" of table "ledger" (23505)',
    ],
    [
      "a type",
      [`ALTER TABLE plants ALTER "${OPTIONAL_TEXT}" TYPE varchar(9)`],
      "a column's type, or a function, refuses a value: PostgreSQL's log says which (22001)",
    ],
    [
      "an index whose rows are too long",
      [
        `CREATE FUNCTION long(id bigint) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT CASE WHEN id = 13
          THEN (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 150) AS i) END $$`,
        "CREATE INDEX long ON plants (long(id))",
      ],
      'for index "long" (54000)',
    ],
    ["a trigger", raise("P0001"), "a trigger says: not for sale (P0001)"],
    ["a trigger with a code of its own", raise("PT402"), "a trigger says: not for sale (PT402)"],
  ])("%s refuses one plant of a batch only, and the log names it", async (_, change, message) => {
    await using database = await cluster().newDatabase();
    expect(await refusalIn(database.url, () => database.run(...change))).toMatchObject({
      reason: { code: "internal", cause: { message: expect.stringContaining(message) } },
    });
  });
});

describe("on SQLite", () => {
  test.each([
    [
      "a unique index",
      [`CREATE UNIQUE INDEX by_text ON plants ("${TEXT}")`, insertOf(moss({ id: 12 }))],
      `UNIQUE constraint failed: plants.${TEXT}`,
    ],
    [
      "a trigger",
      [
        `CREATE TRIGGER refuse BEFORE INSERT ON plants WHEN NEW.id = 13
          BEGIN SELECT RAISE(ABORT, 'not for sale'); END`,
      ],
      "not for sale",
    ],
    [
      "a trigger that ends the transaction",
      [
        `CREATE TRIGGER refuse BEFORE INSERT ON plants WHEN NEW.id = 13
          BEGIN SELECT RAISE(ROLLBACK, 'not for sale'); END`,
      ],
      "not for sale",
    ],
  ])("%s refuses one plant of a batch only, and the log names it", async (_, change, message) => {
    using directory = emptyDirectory();
    const path = join(directory.path, "plants.db");
    const refusal = await refusalIn(`file:${path}`, () => {
      using database = new Database(path);
      for (const statement of change) database.run(statement);
    });
    expect(refusal).toMatchObject({
      reason: { code: "internal", cause: expect.stringContaining(message) },
    });
  });
});
