import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";

import type { Database } from "../../../src/database/database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../../../src/database/postgres/url.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { databaseAt, skipsCluster, startCluster } from "../../support/postgres.ts";
import { openPostgres } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A database of the reader's own: the contract runs on any PostgreSQL there is. */
const OWN_URL = process.env["TEST_DATABASE_URL"];

const title = OWN_URL === undefined ? "PostgreSQL" : `PostgreSQL at ${new URL(OWN_URL).host}`;

describe.skipIf(OWN_URL === undefined && skipsCluster())(title, () => {
  let postgres: ReturnType<typeof databaseAt>;
  let url: PostgresUrl;
  let database: Database;

  beforeAll(async () => {
    postgres = OWN_URL === undefined ? await startCluster() : databaseAt(OWN_URL);
    url = parsePostgresUrl(await postgres.emptyDatabase());
    database = await openPostgres(url);
  });
  afterAll(async () => {
    await database[Symbol.asyncDispose]();
    await postgres[Symbol.asyncDispose]();
  });

  // Opening one takes longer than most of what is tested: one that is empty again is as good as a
  // new one.
  testDatabaseContract(
    "openPostgres()",
    async () => {
      await postgres.removeRows();
      return { ...database, async [Symbol.asyncDispose]() {} };
    },
    () => openPostgres(url),
  );
});
