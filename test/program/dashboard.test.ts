import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { EVERY_METRIC, expectValues, PANELS } from "../support/dashboard.ts";
import { skipsWithout } from "../support/missing.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsWithout("prometheus", "prometheus"))(
  "every panel of the dashboard has values, but for those of PostgreSQL",
  async () => {
    const env = { AUTH_TOKENS: TOKEN };
    await using server = await startServer({ env });
    await using withAll = await startServer({ env: { ...env, ...EVERY_METRIC } });

    const panels = PANELS.filter(({ title }) => !title.startsWith("PostgreSQL"));
    expect(panels.length).toBeGreaterThan(15);
    await expectValues(panels, [server, withAll]);
  },
);
