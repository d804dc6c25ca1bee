import { describe, expect, setDefaultTimeout, test } from "bun:test";

import { openPostgres, type PostgresOptions } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = { id: 1n, name: "Fern" };

const FUNCTION = `CREATE OR REPLACE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN NEW.name := upper(NEW.name); RETURN NEW; END$$`;
const TRIGGER =
  "CREATE TRIGGER shouting BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION shout()";

const CHECK = "ADD CONSTRAINT ours CHECK (id < 50)";

/** Plants in two partitions, as an operator makes them who has very many. */
const PARTITIONED = [
  "ALTER TABLE plants RENAME TO whole",
  "CREATE TABLE plants (LIKE whole, PRIMARY KEY (id)) PARTITION BY HASH (id)",
  "DROP TABLE whole",
  "CREATE TABLE even PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
  "CREATE TABLE odd PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
];

const NO_KEY = "plants has no valid primary key on id: ALTER TABLE plants ADD PRIMARY KEY (id)";
const unlogged = (table: string) =>
  `${table} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${table} SET LOGGED`;

/** What somebody does to the tables, and how they are refused. */
const UNSAFE: readonly (readonly [name: string, changes: readonly string[], refusal: string])[] = [
  ["unlogged plants", ["ALTER TABLE plants SET UNLOGGED"], unlogged("plants")],
  ["unlogged tokens", ["ALTER TABLE tokens SET UNLOGGED"], unlogged("tokens")],
  ["an unlogged partition", [...PARTITIONED, "ALTER TABLE odd SET UNLOGGED"], unlogged("odd")],
  ["no primary key", ["ALTER TABLE plants DROP CONSTRAINT plants_pkey"], NO_KEY],
  [
    "a key of more than the id",
    ["ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD PRIMARY KEY (id, name)"],
    NO_KEY,
  ],
  [
    "a key of some ids",
    [
      "ALTER TABLE plants DROP CONSTRAINT plants_pkey",
      "CREATE UNIQUE INDEX ON plants (id) WHERE id > 0",
    ],
    NO_KEY,
  ],
  [
    "a key that is checked at the commit",
    ["ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD PRIMARY KEY (id) DEFERRABLE"],
    NO_KEY,
  ],
  [
    "names without their trailing spaces",
    ["ALTER TABLE plants ALTER name TYPE char(50)"],
    "plants.name is character(50), not text: restore plant-store's type",
  ],
  [
    "shorter ids and tags",
    ["ALTER TABLE plants ALTER id TYPE integer, ALTER tag TYPE varchar(9)"],
    "plants.id is integer, not bigint, plants.tag is character varying(9), not text: restore plant-store's type",
  ],
  [
    "a missing column",
    ["ALTER TABLE plants DROP COLUMN tag"],
    "plants.tag is missing, not text: restore plant-store's type",
  ],
  [
    "a view in the place of plants",
    [
      "DROP TABLE plants",
      "CREATE VIEW plants AS SELECT 1::bigint AS id, ''::text AS name, ''::text AS tag",
    ],
    "plants is not a table of this database: restore plant-store's",
  ],
  [
    "a domain",
    ["CREATE DOMAIN label AS text CHECK (value <> '')", "ALTER TABLE plants ALTER name TYPE label"],
    "plants.name is label, not text: restore plant-store's type",
  ],
  ["a missing table", ["DROP TABLE probes"], "the table probes is missing: restore it"],
];

/** What an operator may do to the tables, and what the log calls it. */
const SAFE: readonly (readonly [name: string, changes: readonly string[], extra: string])[] = [
  [
    "more columns, with defaults",
    ["ALTER TABLE plants ADD added_at timestamptz NOT NULL DEFAULT now()"],
    "",
  ],
  ["partitions", PARTITIONED, ""],
  ["a foreign key to plants", ["CREATE TABLE orders (plant bigint REFERENCES plants)"], ""],
  [
    "a trigger that is disabled",
    [FUNCTION, TRIGGER, "ALTER TABLE plants DISABLE TRIGGER shouting"],
    "",
  ],
  [
    "another key of the id",
    [
      "ALTER TABLE plants DROP CONSTRAINT plants_pkey",
      "ALTER TABLE plants ALTER id DROP NOT NULL",
      "CREATE UNIQUE INDEX ON plants (id) INCLUDE (name)",
    ],
    "",
  ],
  [
    "the columns in another order",
    [
      "ALTER TABLE plants DROP COLUMN id, DROP COLUMN name, ADD name text, ADD id bigint PRIMARY KEY",
    ],
    "",
  ],
  [
    "names in a collation that ignores case",
    [
      "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
      "ALTER TABLE plants ALTER name TYPE text COLLATE caseless",
    ],
    "",
  ],
  ["an index", ["CREATE INDEX by_name ON plants (name)"], "index by_name"],
  ["a CHECK constraint", [`ALTER TABLE plants ${CHECK}`], "constraint ours"],
  [
    "a CHECK constraint of partitions",
    [...PARTITIONED, `ALTER TABLE plants ${CHECK}`],
    "constraint ours",
  ],
  [
    "a CHECK constraint of one partition",
    [...PARTITIONED, `ALTER TABLE odd ${CHECK}`],
    "constraint ours",
  ],
  [
    "a foreign key",
    [
      "CREATE TABLE tags (tag text PRIMARY KEY)",
      "ALTER TABLE plants ADD CONSTRAINT ours FOREIGN KEY (tag) REFERENCES tags",
    ],
    "constraint ours",
  ],
  [
    "an exclusion constraint",
    ["ALTER TABLE plants ADD CONSTRAINT ours EXCLUDE (name WITH =)"],
    "index ours",
  ],
  ["a trigger on UPDATE", [FUNCTION, TRIGGER.replace("INSERT", "UPDATE")], "trigger shouting"],
  [
    "a trigger of a partition",
    [...PARTITIONED, FUNCTION, TRIGGER.replace("ON plants", "ON odd")],
    "trigger shouting",
  ],
  ["a rule", ["CREATE RULE ours AS ON DELETE TO plants DO INSTEAD NOTHING"], "rule ours"],
];

/** What keeps a plant from being stored although its id is free, and PostgreSQL's code for it. */
const REFUSING: readonly (readonly [name: string, changes: readonly string[], code: string])[] = [
  [
    "another unique index",
    ["INSERT INTO plants VALUES (1, 'Fern')", "CREATE UNIQUE INDEX by_name ON plants (name)"],
    "23505",
  ],
  [
    "a foreign key, at the commit,",
    [
      "CREATE TABLE names (name text PRIMARY KEY)",
      "ALTER TABLE plants ADD FOREIGN KEY (name) REFERENCES names DEFERRABLE INITIALLY DEFERRED",
    ],
    "23503",
  ],
];

describe.skipIf(skipsCluster())("openPostgres() on tables that somebody has changed", () => {
  let cluster: PostgresCluster;
  withCluster((started) => (cluster = started));

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
    const database = await cluster.newDatabase();
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

  test.concurrent.each(SAFE)(
    "works with %s, and warns once of what may refuse a plant",
    async (_, changes, extra) => {
      await using database = await withTables();
      await database.run(...changes);
      const warnings: string[] = [];
      await using server = await open(database.url, {
        onWarning: (message) => warnings.push(message),
      });
      for (const outcome of ["added", "present"] as const) {
        expect(await server.add(FERN)).toEqual([outcome]);
        await disconnect(database);
      }
      expect(await server.add({ ...FERN, name: "fern" })).toEqual(["conflict"]);
      expect(await server.stored()).toMatchObject([{ id: 1n }]);
      const warning = `Not created by plant-store, and may reject or change plants: ${extra}`;
      expect(warnings).toEqual(extra === "" ? [] : [warning]);
    },
  );

  test.concurrent.each(REFUSING)(
    "takes no plant for stored that %s refuses, and quotes it nowhere",
    async (_, changes, code) => {
      await using database = await withTables();
      await database.run(...changes);
      await using server = await open(database.url);
      const error = await server.add({ ...FERN, id: 2n }).catch((reason: unknown) => reason);
      expect(error).toMatchObject({
        name: "PostgresFailure",
        code,
        message: `unexpected error (${code})`,
      });
      expect(Bun.inspect(error)).not.toContain("Fern");
      expect(await database.run("SELECT id FROM plants WHERE id = 2")).toEqual([]);
    },
  );

  test.concurrent("refuses the tables of a second server that are UNLOGGED", async () => {
    await using other = await startCluster();
    for (const { url } of [cluster, other])
      await (await open(url("postgres")))[Symbol.asyncDispose]();
    await other.run("ALTER TABLE plants SET UNLOGGED");
    const hosts = [cluster, other].map(({ port }) => `127.0.0.1:${port}`).join();
    await using server = await open(`postgres://postgres@${hosts}/postgres`);
    expect(await server.add(FERN)).toEqual(["added"]);
    await cluster.run("ALTER DATABASE postgres SET default_transaction_read_only = on");
    await disconnect(cluster);
    await expect(server.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).rejects.toMatchObject({
      code: "storage_unavailable",
      cause: { message: expect.stringContaining(`127.0.0.1:${other.port}: ${unlogged("plants")}`) },
    });
  });

  test.concurrent(
    "goes on with the tables of the start, wherever a role's search_path leads later",
    async () => {
      await cluster.run(
        "CREATE ROLE mover SUPERUSER LOGIN",
        'ALTER ROLE mover SET search_path = "Moved"',
      );
      await using database = await cluster.newDatabase();
      await database.run('CREATE SCHEMA "Moved"', "CREATE SCHEMA moved");
      await using server = await open(as("mover", database.url));
      expect(await server.add(FERN)).toEqual(["added"]);
      await cluster.run("ALTER ROLE mover SET search_path = moved");
      await database.run('CREATE TABLE moved.plants (LIKE "Moved".plants)');
      await disconnect(database);
      expect(await server.add(FERN)).toEqual(["present"]);
      expect(await server.stored()).toEqual([FERN]);
    },
  );

  test.concurrent(
    "makes no second set of tables in a schema that search_path finds first",
    async () => {
      await cluster.run("CREATE ROLE doubled SUPERUSER LOGIN");
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
      await cluster.run("CREATE ROLE owner LOGIN", "CREATE ROLE reader LOGIN");
      await using database = await cluster.newDatabase();
      await database.run("GRANT ALL ON SCHEMA public TO owner");
      await using server = await open(as("owner", database.url));
      expect(await server.add(FERN, { id: 9n, name: "Ivy" })).toEqual(["added", "added"]);
      await database.run(
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reader",
        "ALTER TABLE plants ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY small ON plants USING (id < 5)",
      );
      await using reader = await open(as("reader", database.url), { access: "read" });
      const refused = new Error(
        `Cannot read database "${database.name}": the user lacks a privilege (42501)`,
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
