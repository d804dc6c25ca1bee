import { beforeEach, describe, expect, test } from "bun:test";

import { MIGRATIONS, scriptOf } from "../../../src/database/postgres/migrations.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { fern } from "../../support/plants.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { openPostgres, probe, withCluster } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

describe.skipIf(skipsCluster())("openPostgres()", () => {
  let url: string;
  const cluster = withCluster();
  beforeEach(async () => void (url = await cluster().emptyDatabase()));

  const open = (access: "create" | "write" | "read" = "create", at = url) =>
    openPostgres(parsePostgresUrl(at), { access });

  test("makes the tables once, however many servers start at the same time", async () => {
    for (let round = 0; round < 5; round++) {
      await cluster().emptyDatabase();
      const opened = await Promise.all(Array.from({ length: 10 }, () => open()));
      for (const database of opened) await database[Symbol.asyncDispose]();
      // Behind its name, a migration that only adds has what it adds.
      const tags = "SELECT split_part(tag, ' ', 1) AS tag FROM plant_store_migrations";
      expect(await cluster().run(tags)).toEqual(MIGRATIONS.map(({ tag }) => ({ tag })));
    }
  });

  test.each([
    ["others", "BEGIN; CREATE TABLE tokens (name text)", "ROLLBACK"],
    ["psql", MIGRATIONS.map(scriptOf).join("").replaceAll("COMMIT;\n", ""), "COMMIT"],
  ])(
    "waits for %s to make the tables, past the lock_timeout of its statements",
    async (_, statements, end) => {
      await using rival = cluster().connect();
      await rival.unsafe(statements).simple();
      const opened = [open(), open()];
      const waiting = "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

      while (
        (await cluster().run(`${waiting} AND query_start < now() - interval '600ms'`)).length < 2
      )
        await Bun.sleep(20);

      await rival.unsafe(end);
      for (const opening of opened) {
        await using database = await opening;
        expect(await database.tokens.list()).toEqual([]);
      }
    },
  );

  test("says clearly that something else has the name of a table", async () => {
    const taken =
      "another application's view, type or table has the name of a plant-store table: create a schema for plant-store";

    for (const [made, dropped, message] of [
      ["CREATE VIEW plants AS SELECT 1", "DROP VIEW plants", `${taken} (42P07)`],
      ["CREATE TYPE plants AS ENUM ()", "DROP TYPE plants", `${taken} (42710)`],
    ] as const) {
      await cluster().run(made);
      await expect(open()).rejects.toThrow(`Cannot open database "postgres": ${message}`);
      await cluster().run(dropped);
    }
  });

  test("makes no tables for a command that only reads or lists", async () => {
    for (const access of ["read", "write"] as const) {
      await expect(open(access)).rejects.toThrow(
        'Cannot open database "postgres": it has no plant-store tables',
      );
    }

    expect(
      await cluster().run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"),
    ).toEqual([]);
  });

  test("works as a role that may not create tables, once another role has made them", async () => {
    // Before version 15 everybody may create tables there.
    await cluster().run("CREATE ROLE gardener LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    const asGardener = cluster().url("postgres", "gardener");
    await expect(open("create", asGardener)).rejects.toThrow(
      'Cannot open database "postgres": the user may not create or alter tables: run plant-store migrate once, with the URL of a user who may',
    );

    await (await open())[Symbol.asyncDispose]();
    await expect(open("write", asGardener)).rejects.toThrow(
      "the user lacks SELECT on plant_store_migrations: GRANT it",
    );

    await cluster().run("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO gardener");
    const tables = ["plants", "probes", "token_revision", "tokens"];
    const updates = tables.toSorted().map((table) => `UPDATE on ${table}`);
    for (const access of ["create", "write"] as const) {
      await expect(open(access, asGardener)).rejects.toThrow(
        `Cannot open database "postgres": the user lacks ${updates.join(", ")}: GRANT it`,
      );
    }

    await (await open("read", asGardener))[Symbol.asyncDispose]();
    await cluster().run("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO gardener");
    await using database = await open("create", asGardener);
    const plant = fern();
    expect(await database.plants.add([plant], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    expect(await database.plants.add([plant], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["present"]);

    await probe(database);
  });

  test.each([
    ["none is left", "hidden"],
    ["others follow", "hidden, public"],
    ["it is named for the user", '"$user", public'],
  ])("names a schema that the user may not use: %s", async (_what, path) => {
    const role = "hidden";
    await using database = await cluster().newDatabase();
    await database.run(
      "CREATE SCHEMA hidden",
      "SET search_path = hidden",
      "CREATE TABLE plant_store_migrations ()",
      `DROP ROLE IF EXISTS ${role}`,
      `CREATE ROLE ${role} LOGIN`,
      `ALTER ROLE ${role} SET search_path = ${path}`,
    );
    const url = parsePostgresUrl(database.url.replace("postgres@", `${role}@`));

    await expect(openPostgres(url)).rejects.toThrow(
      `Cannot open database "${database.name}": the user lacks USAGE on schema "hidden": GRANT it`,
    );
  });

  test("makes its tables in a schema whose name needs quotes", async () => {
    await using database = await cluster().newDatabase();
    await database.run(
      "CREATE ROLE quoting LOGIN",
      'CREATE SCHEMA "Plants" AUTHORIZATION quoting',
      'ALTER ROLE quoting SET search_path = "Plants"',
    );
    await using opened = await open("create", database.url.replace("postgres@", "quoting@"));
    expect(await opened.tokens.list()).toEqual([]);
  });

  test("needs a schema to make tables in", async () => {
    await cluster().run(
      "CREATE ROLE nowhere LOGIN",
      "ALTER ROLE nowhere SET search_path = missing",
    );
    await expect(open("create", cluster().url("postgres", "nowhere"))).rejects.toThrow(
      'Cannot open database "postgres": no schema in its search_path exists: create one',
    );
  });
});
