import { describe, expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { expectValues, PANELS } from "../support/dashboard.ts";
import { skipsWithout } from "../support/missing.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster() || skipsWithout("prometheus", "prometheus"))("the dashboard", () => {
  const cluster = withCluster();

  test("every panel of PostgreSQL has values", async () => {
    await using database = await cluster().newDatabase();
    await using server = await startServer({
      env: { AUTH_TOKENS: TOKEN, DATABASE_URL: database.url },
    });

    const panels = PANELS.filter(({ title }) => title.startsWith("PostgreSQL"));
    expect(panels.length).toBeGreaterThan(3);
    await expectValues(panels, [server]);
  });
});
