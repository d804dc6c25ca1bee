import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { CERTIFICATE, expectValues, PANELS } from "../support/dashboard.ts";
import { skipsWithout } from "../support/missing.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsWithout("prometheus", "prometheus"))(
  "every panel of the dashboard has values, but for those of PostgreSQL",
  async () => {
    const env = { AUTH_TOKENS: TOKEN };
    await using server = await startServer({ env });
    await using withAll = await startServer({
      env: {
        ...env,
        TLS_CERT_FILE: `${CERTIFICATE}.crt`,
        TLS_KEY_FILE: `${CERTIFICATE}.key`,
        AUTH_JWKS_URL: "http://127.0.0.1:9/jwks",
        AUTH_ISSUER: "http://127.0.0.1/",
        AUTH_AUDIENCE: "plant-store",
        OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9",
      },
    });

    const panels = PANELS.filter(({ title }) => !title.startsWith("PostgreSQL"));
    expect(panels.length).toBeGreaterThan(15);
    await expectValues(panels, [server, withAll]);
  },
);
