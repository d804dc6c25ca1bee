import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres, type PostgresOptions } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { PlantStoreError } from "../../../src/errors.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { withEmptyDatabase } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = { id: 1n, name: "Fern" };

const FUNCTION = `CREATE OR REPLACE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN NEW.name := upper(NEW.name); RETURN NEW; END$$`;
const TRIGGER = "CREATE TRIGGER shouting BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION shout()";

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

const TAG_REQUIRED = "ALTER TABLE plants ALTER tag SET NOT NULL";
const TWO_GENERATED = "plants.name is GENERATED, plants.tag is GENERATED";
const inheriting = (table: string) => `CREATE TABLE archive (LIKE ${table} INCLUDING ALL) INHERITS (${table})`;
const uncovered = (child: string, table: string) =>
  `${child} inherits from ${table}, whose primary key does not cover it: move its rows into ${table}, and drop it`;
const refusing = (columns: string) => `${columns}, which refuses plants: restore plant-store's columns`;
const generated = (column: string) => [
  `ALTER TABLE plants DROP COLUMN ${column}`,
  `ALTER TABLE plants ADD ${column} text GENERATED ALWAYS AS ('x') STORED`,
];

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
  ["a trigger", [FUNCTION, TRIGGER], "plants has a trigger on INSERT, which may change plants: drop shouting"],
  [
    "a trigger of a partition",
    [...PARTITIONED, FUNCTION, TRIGGER.replace("ON plants", "ON odd")],
    "odd has a trigger on INSERT, which may change plants: drop shouting",
  ],
  [
    "a rule",
    ["CREATE RULE swallow AS ON INSERT TO plants DO INSTEAD NOTHING"],
    "plants has a rule, which may change plants: drop swallow",
  ],
  [
    "a view in the place of plants",
    ["DROP TABLE plants", "CREATE VIEW plants AS SELECT 1::bigint AS id, ''::text AS name, ''::text AS tag"],
    "plants is not a table of this database: restore plant-store's",
  ],
  [
    "plants in a table that inherits",
    [
      inheriting("plants"),
      "WITH moved AS (DELETE FROM ONLY plants RETURNING *) INSERT INTO archive SELECT * FROM moved",
    ],
    uncovered("archive", "plants"),
  ],
  [
    "an heir of an heir",
    ["CREATE TABLE middle () INHERITS (plants)", "CREATE TABLE archive () INHERITS (middle)"],
    uncovered("archive", "plants"),
  ],
  ["tokens in a table that inherits", [inheriting("tokens")], uncovered("archive", "tokens")],
  ["a tag that is required", ["TRUNCATE plants", TAG_REQUIRED], refusing("plants.tag is NOT NULL")],
  [
    "a tag that a partition requires",
    [...PARTITIONED, TAG_REQUIRED.replace("plants", "odd")],
    refusing("odd.tag is NOT NULL"),
  ],
  [
    "an id that PostgreSQL makes",
    ["ALTER TABLE plants ALTER id ADD GENERATED ALWAYS AS IDENTITY"],
    refusing("plants.id is GENERATED ALWAYS AS IDENTITY"),
  ],
  ["a generated name", generated("name"), refusing("plants.name is GENERATED")],
  ["a generated name and tag", [...generated("name"), ...generated("tag")], refusing(TWO_GENERATED)],
  [
    "one more column that is required",
    ["TRUNCATE plants", "ALTER TABLE plants ADD garden text NOT NULL"],
    refusing("plants.garden is NOT NULL without a default"),
  ],
  [
    "one more column of a domain that is required",
    ["TRUNCATE plants", "CREATE DOMAIN required AS text NOT NULL", "ALTER TABLE plants ADD garden required"],
    refusing("plants.garden is NOT NULL without a default"),
  ],
  [
    "a domain",
    ["CREATE DOMAIN label AS text CHECK (value <> '')", "ALTER TABLE plants ALTER name TYPE label"],
    "plants.name is label, not text: restore plant-store's type",
  ],
  ["a missing table", ["DROP TABLE probes"], "the table probes is missing: restore it"],
];

const BY_DEFAULT = "GENERATED BY DEFAULT AS IDENTITY";

/** What an operator may do to the tables. */
const SAFE: readonly (readonly [name: string, changes: readonly string[]])[] = [
  ["more columns, with defaults", ["ALTER TABLE plants ADD added_at timestamptz NOT NULL DEFAULT now()"]],
  [
    "more columns that PostgreSQL fills",
    [
      "CREATE DOMAIN garden AS text DEFAULT 'north' NOT NULL",
      "ALTER TABLE plants ADD garden garden NOT NULL, ADD number bigint GENERATED ALWAYS AS IDENTITY",
      "ALTER TABLE plants ADD label text NOT NULL GENERATED ALWAYS AS (upper(name)) STORED",
    ],
  ],
  ["ids that PostgreSQL makes where there are none", [`ALTER TABLE plants ALTER id ADD ${BY_DEFAULT}`]],
  ["partitions", PARTITIONED],
  [
    "partitions that were tables with more defaults",
    [
      ...PARTITIONED,
      "DROP TABLE odd",
      "ALTER TABLE plants ADD garden text NOT NULL DEFAULT 'north'",
      "CREATE TABLE odd (garden text NOT NULL, id bigint PRIMARY KEY, name text NOT NULL, tag text)",
      "ALTER TABLE plants ATTACH PARTITION odd FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    ],
  ],
  // The key of plants covers all that is read through plants.
  [
    "plants that inherit from another table",
    ["CREATE TABLE living (id bigint NOT NULL, name text)", "ALTER TABLE plants INHERIT living"],
  ],
  ["a foreign key to plants", ["CREATE TABLE orders (plant bigint REFERENCES plants)"]],
  ["a trigger that is disabled", [FUNCTION, TRIGGER, "ALTER TABLE plants DISABLE TRIGGER shouting"]],
  ["a trigger on UPDATE", [FUNCTION, TRIGGER.replace("INSERT", "UPDATE")]],
  [
    "another key of the id",
    [
      "ALTER TABLE plants DROP CONSTRAINT plants_pkey",
      "ALTER TABLE plants ALTER id DROP NOT NULL",
      "CREATE UNIQUE INDEX ON plants (id) INCLUDE (name)",
    ],
  ],
  [
    "the columns in another order",
    ["DROP TABLE plants", "CREATE TABLE plants (tag text, name text, id bigint PRIMARY KEY)"],
  ],
];

const CHECK = "ADD CONSTRAINT ours CHECK (id < 50)";

/** What an operator adds that lets some plants in, and what the log calls it. */
const CONSTRAINTS: readonly (readonly [name: string, changes: readonly string[], warning: string])[] = [
  ["a CHECK constraint", [`ALTER TABLE plants ${CHECK}`], "Constraint"],
  ["a CHECK constraint of partitions", [...PARTITIONED, `ALTER TABLE plants ${CHECK}`], "Constraint"],
  ["a CHECK constraint of one partition", [...PARTITIONED, `ALTER TABLE odd ${CHECK}`], "Constraint"],
  [
    "a foreign key",
    [
      "CREATE TABLE tags (tag text PRIMARY KEY)",
      "ALTER TABLE plants ADD CONSTRAINT ours FOREIGN KEY (tag) REFERENCES tags",
    ],
    "Constraint",
  ],
  // It has an index, and is warned of as one.
  ["an exclusion constraint", ["ALTER TABLE plants ADD CONSTRAINT ours EXCLUDE (name WITH =)"], "Index"],
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

  test.each(UNSAFE)("refuses %s at the start, and on every later connection", async (_, changes, reason) => {
    try {
      await using database = await open();
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
      await cluster.run(...changes);
      await disconnect();
      const refused = `127.0.0.1:${cluster.port}: ${reason}`;
      expect(await refusalOf(database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS }))).toEqual({
        code: "storage_unavailable",
        message: "storage is gone; the plant may or may not be stored, send it again later",
        cause: refused,
      });
      for (const access of ["create", "write"] as const) {
        await expect(open({ access })).rejects.toThrow(new Error(`Cannot open database "postgres": ${reason}`));
      }
    } finally {
      await removeTables();
    }
  });

  test.each(SAFE)("works with %s", async (_, changes) => {
    try {
      await (await open())[Symbol.asyncDispose]();
      await cluster.run(...changes);
      const warnings: string[] = [];
      await using database = await open({ onWarning: (message) => warnings.push(message) });
      for (const outcome of ["added", "present"] as const) {
        expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual([outcome]);
      }
      expect((await Array.fromAsync(database.pages())).flat()).toEqual([FERN]);
      expect(warnings).toEqual([]);
    } finally {
      await removeTables();
    }
  });

  test("warns once of an index that it did not make", async () => {
    await (await open())[Symbol.asyncDispose]();
    await cluster.run("CREATE INDEX by_name ON plants (name)");
    const warnings: string[] = [];
    await using database = await open({ onWarning: (message) => warnings.push(message) });
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    expect(warnings).toEqual(["Index on plants that plant-store did not make: by_name"]);
  });

  test.each(CONSTRAINTS)("warns once of %s, which may refuse a plant", async (_, changes, warning) => {
    try {
      await (await open())[Symbol.asyncDispose]();
      await cluster.run(...changes);
      const warnings: string[] = [];
      await using database = await open({ onWarning: (message) => warnings.push(message) });
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
      await disconnect();
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["present"]);
      expect(warnings).toEqual([`${warning} on plants that plant-store did not make: ours`]);
    } finally {
      await removeTables();
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

  test("refuses tables of another schema than those at the start", async () => {
    await cluster.run("CREATE ROLE moved SUPERUSER LOGIN");
    const asMoved = cluster.url("postgres", "moved");
    await using database = await open({}, asMoved);
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    try {
      await cluster.run(
        "CREATE SCHEMA moved",
        "CREATE TABLE moved.plants (LIKE public.plants INCLUDING ALL)",
        "INSERT INTO moved.plants VALUES (2, 'Ivy')",
      );
      await disconnect();
      const reason = `search_path finds plants in schema "moved", not in "public": set it to plant-store's schema`;
      expect(await refusalOf(database.plants.add([{ id: 1n, name: "Ivy" }], { timeoutMs: TEST_TIMEOUT_MS }))).toEqual({
        code: "storage_unavailable",
        message: "storage is gone; the plant may or may not be stored, send it again later",
        cause: `127.0.0.1:${cluster.port}: ${reason}`,
      });
      await expect(Array.fromAsync(database.pages())).rejects.toThrow(
        new Error(`Cannot read database "postgres": 127.0.0.1:${cluster.port}: ${reason}`),
      );
      // At once: another lane may still connect, and is to find one of the two.
      await cluster.run(
        "DO $$ BEGIN DROP SCHEMA moved CASCADE; CREATE SCHEMA moved; CREATE TABLE moved.probes (id integer); END $$",
      );
      expect(await refusalOf(database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS }))).toMatchObject({
        cause: `127.0.0.1:${cluster.port}: ${reason.replace("plants", "probes")}`,
      });
      await cluster.run("DROP SCHEMA moved CASCADE");
      expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["present"]);
    } finally {
      await cluster.run("DROP SCHEMA IF EXISTS moved CASCADE");
    }
  });

  test("makes no second set of tables in a schema that search_path finds first", async () => {
    await cluster.run("CREATE ROLE doubled SUPERUSER LOGIN");
    const asDoubled = cluster.url("postgres", "doubled");
    await (await open({}, asDoubled))[Symbol.asyncDispose]();
    await cluster.run("CREATE SCHEMA doubled");
    const refusal = new Error(
      `Cannot open database "postgres": search_path leads to schema "doubled", but plant-store's tables are in "public": set search_path to it`,
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
      const reason = "row level security hides rows of plants: disable it, or use a role with BYPASSRLS";
      for (const access of ["create", "read"] as const) {
        await expect(open({ access }, cluster.url("postgres", "reader"))).rejects.toThrow(
          new Error(`Cannot open database "postgres": ${reason}`),
        );
      }
      // It does not apply to the owner,
      expect((await Array.fromAsync(database.pages())).flat()).toHaveLength(2);
      await cluster.run("ALTER TABLE plants FORCE ROW LEVEL SECURITY");
      // nor, from now on, on the connection that was open, are rows left out.
      await expect(Array.fromAsync(database.pages())).rejects.toThrow(
        new Error('Cannot read database "postgres": the user may not do what is needed (42501)'),
      );
    } finally {
      await cluster.run("DROP OWNED BY owner CASCADE", "DROP OWNED BY reader");
    }
  });
});
