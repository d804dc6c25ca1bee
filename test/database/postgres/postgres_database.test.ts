import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";

import type { PostgresDatabase } from "../../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../../../src/database/postgres/url.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { databaseAt, skipsCluster, startCluster } from "../../support/postgres.ts";
import { openPostgres, probe } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A database of the reader's own: the contract runs on any PostgreSQL there is. */
const OWN_URL = process.env["TEST_DATABASE_URL"];

const title = OWN_URL === undefined ? "PostgreSQL" : `PostgreSQL at ${new URL(OWN_URL).host}`;

describe.skipIf(OWN_URL === undefined && skipsCluster())(title, () => {
  let postgres: ReturnType<typeof databaseAt>;
  let url: PostgresUrl;
  let database: PostgresDatabase;

  beforeAll(async () => {
    postgres = OWN_URL === undefined ? await startCluster() : databaseAt(OWN_URL);
    url = parsePostgresUrl(await postgres.emptyDatabase());
    database = await openPostgres(url);
  });
  afterAll(async () => {
    await database[Symbol.asyncDispose]();
    await postgres[Symbol.asyncDispose]();
  });

  const isBusy = () =>
    database
      .metrics()
      .some(({ name, value }) => name === "plant_store_postgres_connections_busy" && value > 0);

  // Opening one takes longer than most of what is tested: one that is empty again is as good as a
  // new one.
  testDatabaseContract(
    "openPostgres()",
    async () => {
      // A batch that timed out may still be committed.
      while (isBusy()) await Bun.sleep(1);
      await postgres.removeRows();
      const plants = { ...database.plants, probe: () => probe(database) };
      return { ...database, plants, async [Symbol.asyncDispose]() {} };
    },
    () => openPostgres(url),
  );
});
