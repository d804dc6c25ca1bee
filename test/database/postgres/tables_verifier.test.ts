import { describe, expect, test } from "bun:test";

import type { PostgresOptions } from "../../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { PlantStoreError } from "../../../src/errors.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { fern, ivy, OPTIONAL_TEXT, TEXT } from "../../support/plants.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { openPostgres, probe, withCluster } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

const FERN = fern();
const TAGGED = fern({ [OPTIONAL_TEXT]: "shade" });

/** Plants in two partitions, as an operator makes them who has very many. */
const PARTITIONED = [
  "ALTER TABLE plants RENAME TO whole",
  "CREATE TABLE plants (LIKE whole, PRIMARY KEY (id)) PARTITION BY HASH (id)",
  "DROP TABLE whole",
  "CREATE TABLE even PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
  "CREATE TABLE odd PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
];

/** A trigger that does something to each new plant. */
const trigger = (body: string) => [
  `CREATE FUNCTION ours() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ${body} END$$`,
  "CREATE TRIGGER ours BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION ours()",
];

const unlogged = (table: string) =>
  `${table} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${table} SET LOGGED`;

/** Changes that no statement would report, and how they are refused. */
const UNSAFE: readonly (readonly [name: string, changes: readonly string[], refusal: string])[] = [
  ["unlogged plants", ["ALTER TABLE plants SET UNLOGGED"], unlogged("plants")],
  ["unlogged tokens", ["ALTER TABLE tokens SET UNLOGGED"], unlogged("tokens")],
  ["an unlogged partition", [...PARTITIONED, "ALTER TABLE odd SET UNLOGGED"], unlogged("odd")],
  [
    "a view in the place of plants",
    ["ALTER TABLE plants RENAME TO kept", "CREATE VIEW plants AS SELECT * FROM kept"],
    "the table plants is missing: restore it",
  ],
  ["a missing table", ["DROP TABLE probes"], "the table probes is missing: restore it"],
];

/** Changes that leave every plant as it was sent. */
const HARMLESS: readonly (readonly [name: string, changes: readonly string[]])[] = [
  ["more columns, with defaults", ["ALTER TABLE plants ADD added_at timestamptz DEFAULT now()"]],
  ["partitions", PARTITIONED],
  [
    "the columns in another order",
    [
      `ALTER TABLE plants DROP COLUMN id, DROP COLUMN "${TEXT}", ADD "${TEXT}" text, ADD id bigint PRIMARY KEY`,
    ],
  ],
  [
    "names in a collation that ignores case",
    [
      "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
      `ALTER TABLE plants ALTER "${TEXT}" TYPE text COLLATE caseless`,
    ],
  ],
];

/** Changes that store another plant than the one that was sent, or none. */
const CHANGING: readonly (readonly [
  name: string,
  changes: readonly string[],
  plant: NewPlant,
  outcome: "conflict" | "unavailable",
])[] = [
  [
    "a trigger changes the name",
    trigger(`NEW."${TEXT}" := upper(NEW."${TEXT}"); RETURN NEW;`),
    FERN,
    "conflict",
  ],
  [
    "a trigger removes the tag",
    trigger(`NEW."${OPTIONAL_TEXT}" := NULL; RETURN NEW;`),
    TAGGED,
    "conflict",
  ],
  ["a trigger changes the id", trigger("NEW.id := NEW.id + 10; RETURN NEW;"), FERN, "unavailable"],
  ["a trigger drops the row", trigger("RETURN NULL;"), FERN, "unavailable"],
  [
    "a type cuts spaces off",
    [`ALTER TABLE plants ALTER "${TEXT}" TYPE varchar(4)`],
    { ...FERN, [TEXT]: "Fern " },
    "conflict",
  ],
  [
    "a type rounds ids",
    ["ALTER TABLE plants ALTER id TYPE double precision"],
    { ...FERN, id: 2n ** 53n + 1n },
    "conflict",
  ],
];

/** Changes that make PostgreSQL reject a plant although its id is free, and its code for that. */
const REJECTING: readonly (readonly [name: string, changes: readonly string[], code: string])[] = [
  [
    "a foreign key, at the commit,",
    [
      "CREATE TABLE names (name text PRIMARY KEY)",
      `ALTER TABLE plants ADD FOREIGN KEY ("${TEXT}") REFERENCES names DEFERRABLE INITIALLY DEFERRED`,
    ],
    "23503",
  ],
  ["no primary key", ["ALTER TABLE plants DROP CONSTRAINT plants_pkey"], "42P10"],
  [
    "a key that is checked at the commit",
    ["ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD PRIMARY KEY (id) DEFERRABLE"],
    "55000",
  ],
  ["a rule", ["CREATE RULE ours AS ON INSERT TO plants DO INSTEAD NOTHING"], "0A000"],
  ["a smaller type", ["ALTER TABLE plants ALTER id TYPE smallint"], "22003"],
];

describe.skipIf(skipsCluster())("openPostgres() on tables that somebody has changed", () => {
  const cluster = withCluster();

  async function open(url: string, options: PostgresOptions = {}) {
    const database = await openPostgres(parsePostgresUrl(url), options);
    const add = (...plants: NewPlant[]) =>
      database.plants.add(plants, { timeoutMs: TEST_TIMEOUT_MS });

    return {
      ...database,
      add,
      stored: async () => (await Array.fromAsync(database.pages())).flat(),
    };
  }

  /** A new database with the tables as a server creates them. */
  async function withTables() {
    const database = await cluster().newDatabase();
    await (await open(database.url))[Symbol.asyncDispose]();
    return database;
  }

  const as = (role: string, url: string) => url.replace("postgres@", `${role}@`);

  /** PostgreSQL itself would look only ten times a second whether they have ended. */
  async function disconnect({ run }: Pick<PostgresCluster, "run">): Promise<void> {
    const own =
      "FROM pg_stat_activity WHERE application_name = 'plant-store' AND datname = current_database()";
    await run(`SELECT pg_terminate_backend(pid) ${own}`);
    while ((await run(`SELECT pid ${own}`)).length > 0) await Bun.sleep(1);
  }

  test.concurrent.each(UNSAFE)("refuses %s at the start", async (_, changes, reason) => {
    await using database = await withTables();
    await database.run(...changes);
    for (const access of ["create", "write"] as const) {
      const refusal = new Error(`Cannot open database "${database.name}": ${reason}`);
      await expect(open(database.url, { access })).rejects.toThrow(refusal);
    }
  });

  test.concurrent(
    "refuses plants that Citus has distributed, by the trigger that tells",
    async () => {
      await using database = await withTables();
      await database.run(
        "CREATE FUNCTION citus_truncate_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN END$$",
        "CREATE TRIGGER shards AFTER TRUNCATE ON plants EXECUTE FUNCTION citus_truncate_trigger()",
      );
      const refusal = new Error(
        `Cannot open database "${database.name}": Citus has distributed its plants: use its URL with the scheme citus`,
      );
      for (const access of ["create", "write", "read"] as const)
        await expect(open(database.url, { access })).rejects.toThrow(refusal);
    },
  );

  test.concurrent.each(HARMLESS)("works with %s", async (_, changes) => {
    await using database = await withTables();
    await database.run(...changes);
    await using server = await open(database.url);
    expect(await server.add(FERN)).toEqual(["added"]);
    expect(await server.add(FERN)).toEqual(["present"]);
    expect(await server.add({ ...FERN, [TEXT]: "fern" })).toEqual(["conflict"]);
    expect(await server.stored()).toMatchObject([FERN]);
  });

  test.concurrent.each(CHANGING)("reports no success if %s", async (_, changes, plant, outcome) => {
    await using database = await withTables();
    await database.run(...changes);
    await using server = await open(database.url);
    expect(await server.add(plant)).toEqual([outcome]);
    // Nor does a retry, which finds what was stored.
    expect(await server.add(plant)).toEqual([outcome]);

    const columns = `id::text, "${TEXT}", "${OPTIONAL_TEXT}"`;
    expect(await database.run(`SELECT ${columns} FROM plants`)).not.toContainEqual({
      id: String(plant.id),
      [TEXT]: plant[TEXT],
      [OPTIONAL_TEXT]: plant[OPTIONAL_TEXT] ?? null,
    });
  });

  test.concurrent.each(REJECTING)(
    "takes no plant for stored that %s rejects, and quotes it nowhere",
    async (_, changes, code) => {
      await using database = await withTables();
      await database.run(...changes);
      await using server = await open(database.url);
      const plant = { ...FERN, id: 40_000n };
      const error = await server.add(plant).catch((reason: Error) => reason);

      // A bug, or storage that is unavailable because of it.
      const failure = error instanceof PlantStoreError ? error.cause : error;
      expect(failure).toMatchObject({ name: "PostgresFailure", code });
      expect(Bun.inspect(error)).not.toContain("Fern");
      expect(await database.run("SELECT id FROM plants WHERE id = 40000")).toEqual([]);
    },
  );

  test.concurrent("is not ready once a column was dropped beside it", async () => {
    await using database = await withTables();
    await using server = await open(database.url);
    await probe(server);

    await database.run(`ALTER TABLE plants DROP COLUMN "${OPTIONAL_TEXT}"`);
    const message =
      'a plant-store table lacks a column: run plant-store migrate --database "$DATABASE_URL", or restore it (42703)';
    await expect(probe(server)).rejects.toThrow(message);
    await expect(server.add(FERN)).rejects.toThrow(message);
  });

  test.concurrent(
    "goes on with the tables of the start, wherever a role's search_path leads later",
    async () => {
      await cluster().run(
        "CREATE ROLE mover SUPERUSER LOGIN",
        'ALTER ROLE mover SET search_path = "Moved"',
      );

      await using database = await cluster().newDatabase();
      await database.run('CREATE SCHEMA "Moved"', "CREATE SCHEMA moved");
      await using server = await open(as("mover", database.url));
      expect(await server.add(FERN)).toEqual(["added"]);

      await cluster().run("ALTER ROLE mover SET search_path = moved");
      await database.run('CREATE TABLE moved.plants (LIKE "Moved".plants)');
      await disconnect(database);
      expect(await server.add(FERN)).toEqual(["present"]);
      expect(await server.stored()).toEqual([FERN]);
    },
  );

  test.concurrent(
    "makes no second set of tables in a schema that search_path finds first",
    async () => {
      await cluster().run("CREATE ROLE doubled SUPERUSER LOGIN");
      await using database = await withTables();
      await database.run("CREATE SCHEMA doubled");
      const refusal = new Error(
        `Cannot open database "${database.name}": search_path leads to schema "doubled", but the plant-store tables are in "public": set search_path to that schema`,
      );
      for (const access of ["create", "write", "read"] as const) {
        await expect(open(as("doubled", database.url), { access })).rejects.toThrow(refusal);
      }
      await database.run("CREATE TABLE doubled.orders (id int)");

      await expect(open(as("doubled", database.url))).rejects.toThrow(refusal);

      const tables = await database.run(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'doubled'",
      );
      expect(tables).toEqual([{ tablename: "orders" }]);
    },
  );

  test.concurrent(
    "refuses rows that row level security hides, instead of leaving them out",
    async () => {
      await cluster().run("CREATE ROLE owner LOGIN", "CREATE ROLE reader LOGIN");
      await using database = await cluster().newDatabase();
      await database.run("GRANT ALL ON SCHEMA public TO owner");
      await using server = await open(as("owner", database.url));
      expect(await server.add(FERN, ivy({ id: 9n }))).toEqual(["added", "added"]);

      await database.run(
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reader",
        "ALTER TABLE plants ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY small ON plants USING (id < 5)",
      );

      await using reader = await open(as("reader", database.url), { access: "read" });
      const refused = new Error(
        `Cannot read database "${database.name}": the user lacks a privilege, or row level security applies to it (42501)`,
      );
      await expect(reader.stored()).rejects.toThrow(refused);
      // It does not apply to the owner,
      expect(await server.stored()).toHaveLength(2);

      await database.run("ALTER TABLE plants FORCE ROW LEVEL SECURITY");
      // nor, from now on, on the connection that was open, are rows left out.
      await expect(server.stored()).rejects.toThrow(refused);
    },
  );
});
