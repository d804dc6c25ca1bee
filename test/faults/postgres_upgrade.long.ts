import { describe, expect, setDefaultTimeout, test } from "bun:test";

import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { upgrade, UPGRADED } from "./upgrade.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();

  test("a server goes on while the next version adds to the database, and starts again", async () => {
    const { url } = await cluster().newDatabase();
    expect(await upgrade("postgres", url, true)).toEqual(UPGRADED);
  });
});
