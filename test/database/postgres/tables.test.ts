import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres, type PostgresOptions } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { PlantStoreError } from "../../../src/errors.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { withEmptyDatabase } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = { id: 1n, name: "Fern" };

const FUNCTION = `CREATE OR REPLACE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN NEW.name := upper(NEW.name); RETURN NEW; END$$`;
const TRIGGER = "CREATE TRIGGER shouting BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION shout()";

const CHECK = "ADD CONSTRAINT ours CHECK (id < 50)";

/** Plants in two partitions, as an operator makes them who has very many. */
const PARTITIONED = [
  "DROP TABLE plants",
  "CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text) PARTITION BY HASH (id)",
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
  ["a key of more than the id", ["ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD PRIMARY KEY (id, name)"], NO_KEY],
  [
    "a key of some ids",
    ["ALTER TABLE plants DROP CONSTRAINT plants_pkey", "CREATE UNIQUE INDEX ON plants (id) WHERE id > 0"],
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
    ["DROP TABLE plants", "CREATE VIEW plants AS SELECT 1::bigint AS id, ''::text AS name, ''::text AS tag"],
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
  ["more columns, with defaults", ["ALTER TABLE plants ADD added_at timestamptz NOT NULL DEFAULT now()"], ""],
  ["partitions", PARTITIONED, ""],
  ["a foreign key to plants", ["CREATE TABLE orders (plant bigint REFERENCES plants)"], ""],
  ["a trigger that is disabled", [FUNCTION, TRIGGER, "ALTER TABLE plants DISABLE TRIGGER shouting"], ""],
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
    ["DROP TABLE plants", "CREATE TABLE plants (tag text, name text, id bigint PRIMARY KEY)"],
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
  ["a CHECK constraint of partitions", [...PARTITIONED, `ALTER TABLE plants ${CHECK}`], "constraint ours"],
  ["a CHECK constraint of one partition", [...PARTITIONED, `ALTER TABLE odd ${CHECK}`], "constraint ours"],
  [
    "a foreign key",
    [
      "CREATE TABLE tags (tag text PRIMARY KEY)",
      "ALTER TABLE plants ADD CONSTRAINT ours FOREIGN KEY (tag) REFERENCES tags",
    ],
    "constraint ours",
  ],
  ["an exclusion constraint", ["ALTER TABLE plants ADD CONSTRAINT ours EXCLUDE (name WITH =)"], "index ours"],
  ["a trigger on UPDATE", [FUNCTION, TRIGGER.replace("INSERT", "UPDATE")], "trigger shouting"],
  ["a trigger of a partition", [...PARTITIONED, FUNCTION, TRIGGER.replace("ON plants", "ON odd")], "trigger shouting"],
  ["a rule", ["CREATE RULE ours AS ON DELETE TO plants DO INSTEAD NOTHING"], "rule ours"],
];

describe.skipIf(skipsCluster())("openPostgres() on tables that somebody has changed", () => {
  let cluster: PostgresCluster;
  let url: string;
  withEmptyDatabase((started, empty) => ([cluster, url] = [started, empty]));

  const open = (options: PostgresOptions = {}, at = url) => openPostgres(parsePostgresUrl(at), options);

  /** PostgreSQL itself would look only ten times a second whether they have ended. */
  async function disconnect(): Promise<void> {
    const connections = "FROM pg_stat_activity WHERE application_name = 'plant-store'";
    await cluster.run(`SELECT pg_terminate_backend(pid) ${connections}`);
    while ((await cluster.run(`SELECT pid ${connections}`)).length > 0) await Bun.sleep(1);
  }

  /** What `add` rejects with: to the client, and to the log. */
  async function refusalOf(added: Promise<unknown>): Promise<object> {
    const error = await added.catch((reason: unknown) => reason);
    if (!(error instanceof PlantStoreError) || !(error.cause instanceof Error)) throw error;
    return { code: error.code, message: error.message, cause: error.cause.message };
  }

  /** Whatever was made of the tables, the next test begins with none. */
  async function removeTables(): Promise<void> {
    await cluster.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT ALL ON SCHEMA public TO PUBLIC");
  }

  test.each(UNSAFE)("refuses %s at the start", async (_, changes, reason) => {
    try {
      await (await open())[Symbol.asyncDispose]();
      await cluster.run(...changes);
      for (const access of ["create", "write"] as const) {
        await expect(open({ access })).rejects.toThrow(new Error(`Cannot open database "postgres": ${reason}`));
      }
    } finally {
      await removeTables();
    }
  });

  test.each(SAFE)("works with %s, and warns once of what may refuse a plant", async (_, changes, extra) => {
    try {
      await (await open())[Symbol.asyncDispose]();
      await cluster.run(...changes);
      const warnings: string[] = [];
      await using database = await open({ onWarning: (message) => warnings.push(message) });
      for (const outcome of ["added", "present"] as const) {
        expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual([outcome]);
        await disconnect();
      }
      const other = { ...FERN, name: "fern" };
      expect(await database.plants.add([other], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["conflict"]);
      expect((await Array.fromAsync(database.pages())).flat()).toMatchObject([{ id: 1n }]);
      const warning = `Not created by plant-store, and may reject or change plants: ${extra}`;
      expect(warnings).toEqual(extra === "" ? [] : [warning]);
    } finally {
      await removeTables();
    }
  });

  test("refuses the tables of a second server, if they are in another schema, or UNLOGGED", async () => {
    await using other = await startCluster();
    await (await open())[Symbol.asyncDispose]();
    await (await open({}, other.url("postgres")))[Symbol.asyncDispose]();
    await other.run("ALTER TABLE plants SET UNLOGGED");
    const both = url.replace(/\/postgres$/, `,127.0.0.1:${other.port}/postgres`);
    await using database = await open({}, both);
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    await cluster.run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()");
    try {
      await disconnect();
      expect(await refusalOf(database.plants.add([FERN], { timeoutMs: 5_000 }))).toMatchObject({
        code: "storage_unavailable",
        cause: expect.stringContaining(`127.0.0.1:${other.port}: ${unlogged("plants")}`),
      });
    } finally {
      await cluster.run("SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only");
      await cluster.run("SELECT pg_reload_conf()", "RESET default_transaction_read_only");
    }
  });

  test("takes no plant for stored that another unique index refuses, and quotes it nowhere", async () => {
    await (await open())[Symbol.asyncDispose]();
    await cluster.run("CREATE UNIQUE INDEX by_name ON plants (name)");
    await using database = await open();
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    const added = database.plants.add([{ ...FERN, id: 2n }], { timeoutMs: TEST_TIMEOUT_MS });
    const error = await added.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ name: "PostgresFailure", code: "23505", message: "unexpected error (23505)" });
    expect(Bun.inspect(error)).not.toContain("Fern");
    expect(await cluster.run("SELECT id FROM plants")).toEqual([{ id: "1" }]);
  });

  test("takes no plant for stored that a foreign key refuses at the commit", async () => {
    await (await open())[Symbol.asyncDispose]();
    await cluster.run(
      "CREATE TABLE names (name text PRIMARY KEY)",
      "ALTER TABLE plants ADD FOREIGN KEY (name) REFERENCES names DEFERRABLE INITIALLY DEFERRED",
    );
    try {
      await using database = await open();
      const added = database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS });
      await expect(added).rejects.toMatchObject({ name: "PostgresFailure", code: "23503" });
      expect(await cluster.run("SELECT id FROM plants")).toEqual([]);
    } finally {
      await cluster.run("DROP TABLE names CASCADE");
    }
  });

  test("goes on with the tables of the start, wherever a role's search_path leads later", async () => {
    await cluster.run('CREATE ROLE "Moved" SUPERUSER LOGIN', 'CREATE SCHEMA "Moved"', "CREATE SCHEMA moved");
    const asMoved = cluster.url("postgres", "Moved");
    try {
      await using database = await open({}, asMoved);
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
      await cluster.run(
        'ALTER ROLE "Moved" SET search_path = moved',
        'CREATE TABLE moved.plants (LIKE "Moved".plants)',
      );
      await disconnect();
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["present"]);
      expect((await Array.fromAsync(database.pages())).flat()).toEqual([FERN]);
    } finally {
      await cluster.run("DROP SCHEMA moved CASCADE", 'DROP SCHEMA "Moved" CASCADE');
    }
  });

  test("makes no second set of tables in a schema that search_path finds first", async () => {
    await cluster.run("CREATE ROLE doubled SUPERUSER LOGIN");
    const asDoubled = cluster.url("postgres", "doubled");
    await (await open({}, asDoubled))[Symbol.asyncDispose]();
    await cluster.run("CREATE SCHEMA doubled");
    const refusal = new Error(
      `Cannot open database "postgres": search_path leads to schema "doubled", but the plant-store tables are in "public": set search_path to that schema`,
    );
    try {
      for (const access of ["create", "write", "read"] as const) {
        await expect(open({ access }, asDoubled)).rejects.toThrow(refusal);
      }
      await cluster.run("CREATE TABLE doubled.orders (id int)");
      await expect(open({}, asDoubled)).rejects.toThrow(refusal);
      expect(await cluster.run("SELECT tablename FROM pg_tables WHERE schemaname = 'doubled'")).toEqual([
        { tablename: "orders" },
      ]);
    } finally {
      await cluster.run("DROP SCHEMA doubled CASCADE");
    }
  });

  test("refuses rows that row level security hides, instead of leaving them out", async () => {
    await cluster.run("CREATE ROLE owner LOGIN", "CREATE ROLE reader LOGIN", "GRANT ALL ON SCHEMA public TO owner");
    try {
      await using database = await open({}, cluster.url("postgres", "owner"));
      expect(await database.plants.add([FERN, { id: 9n, name: "Ivy" }], { timeoutMs: TEST_TIMEOUT_MS })).toEqual([
        "added",
        "added",
      ]);
      await cluster.run(
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reader",
        "ALTER TABLE plants ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY small ON plants USING (id < 5)",
      );
      await using reader = await open({ access: "read" }, cluster.url("postgres", "reader"));
      const refused = new Error('Cannot read database "postgres": the user lacks a privilege (42501)');
      await expect(Array.fromAsync(reader.pages())).rejects.toThrow(refused);
      // It does not apply to the owner,
      expect((await Array.fromAsync(database.pages())).flat()).toHaveLength(2);
      await cluster.run("ALTER TABLE plants FORCE ROW LEVEL SECURITY");
      // nor, from now on, on the connection that was open, are rows left out.
      await expect(Array.fromAsync(database.pages())).rejects.toThrow(refused);
    } finally {
      await cluster.run("DROP OWNED BY owner CASCADE", "DROP OWNED BY reader");
    }
  });
});
