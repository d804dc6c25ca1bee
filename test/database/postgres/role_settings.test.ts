import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import type { Database } from "../../../src/database/database.ts";
import { HOSTILE_PLANTS } from "../../support/database_fixture.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What a role may have otherwise than PostgreSQL has it by itself, and what could change a value or its comparison. */
const STRANGE = {
  array_nulls: "off",
  backslash_quote: "on",
  bytea_output: "escape",
  client_encoding: "latin1",
  DateStyle: "SQL, DMY",
  default_transaction_deferrable: "on",
  default_transaction_isolation: "serializable",
  escape_string_warning: "off",
  extra_float_digits: "-15",
  IntervalStyle: "sql_standard",
  standard_conforming_strings: "off",
  TimeZone: "Asia/Kathmandu",
  transform_null_equals: "on",
};

describe.skipIf(skipsCluster())("openPostgres() as a role with settings of its own", () => {
  let cluster: PostgresCluster;
  /** Who has none of these settings. */
  let reader: Database;
  withCluster((started) => (cluster = started));
  beforeAll(async () => {
    const url = parsePostgresUrl(cluster.url("postgres"));
    await (await openPostgres(url))[Symbol.asyncDispose]();
    reader = await openPostgres(url, { access: "read" });
  });
  afterAll(() => reader[Symbol.asyncDispose]());

  test.each(Object.entries(STRANGE))("%s = %s stores and returns the same", async (name, value) => {
    await cluster.emptyDatabase();
    const role = `strange_${name.toLowerCase()}`;
    await cluster.run(`CREATE ROLE ${role} SUPERUSER LOGIN`, `ALTER ROLE ${role} SET ${name} = '${value}'`);
    await using database = await openPostgres(parsePostgresUrl(cluster.url("postgres", role)));
    for (const outcome of ["added", "present"] as const) {
      const outcomes = await database.plants.add(HOSTILE_PLANTS, { timeoutMs: TEST_TIMEOUT_MS });
      expect(new Set(outcomes)).toEqual(new Set([outcome]));
    }
    const token = {
      name: "gate",
      digest: new Uint8Array(32).fill(0x5c),
      createdAt: new Date("2026-02-01T00:00:00.001Z"),
      expiresAt: new Date("2027-02-01T00:00:00.002Z"),
      scopes: [],
    };
    await database.tokens.add(token);
    expect(await database.tokens.list()).toEqual([{ ...token, revokedAt: null, lastUsedAt: null }]);
    expect((await Array.fromAsync(database.pages())).flat()).toEqual([...HOSTILE_PLANTS]);
    expect((await Array.fromAsync(reader.pages())).flat()).toEqual([...HOSTILE_PLANTS]);
  });
});
