import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";
import { openPostgres } from "../../../src/adapters/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/adapters/postgres/url.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { skipsDatabase, startDatabase } from "../../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsDatabase())("PostgreSQL", () => {
  let postgres: Awaited<ReturnType<typeof startDatabase>>;
  beforeAll(async () => {
    postgres = await startDatabase();
  });
  afterAll(() => postgres[Symbol.asyncDispose]());

  testDatabaseContract("openPostgres()", async () => openPostgres(parsePostgresUrl(await postgres.emptyDatabase())));
});
