import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";

import type { Database } from "../../../src/database/database.ts";
import { openPostgres } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../../../src/database/postgres/url.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { skipsDatabase, startDatabase } from "../../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsDatabase())("PostgreSQL", () => {
  let postgres: Awaited<ReturnType<typeof startDatabase>>;
  let url: PostgresUrl;
  let database: Database;

  beforeAll(async () => {
    postgres = await startDatabase();
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
