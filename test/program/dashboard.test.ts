import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { post, TOKEN } from "../support/client.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import {
  emptyDirectory,
  freePort,
  ROOT,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

const { panels } = (await Bun.file(join(ROOT, "src/telemetry/dashboard.json")).json()) as {
  panels: readonly Panel[];
};

describe.skipIf(skipsCluster() || skipsWithout("prometheus", "prometheus"))("the dashboard", () => {
  const cluster = withCluster();

  test("every panel has values, by a real Prometheus, of a server on SQLite or on PostgreSQL", async () => {
    await using database = await cluster().newDatabase();
    const env = { AUTH_TOKENS: TOKEN };
    await using onSqlite = await startServer({ env });
    await using onPostgres = await startServer({ env: { ...env, DATABASE_URL: database.url } });

    using home = emptyDirectory();
    const targets = [onSqlite, onPostgres].map(({ url }) => new URL(url).host);
    const job = {
      job_name: "plant-store",
      authorization: { credentials: TOKEN },
      static_configs: [{ targets }],
    };
    const config = { global: { scrape_interval: "1s" }, scrape_configs: [job] };
    await Bun.write(home.at("prometheus.yml"), JSON.stringify(config));
    const port = freePort();
    await using prometheus = start({
      program: ["prometheus", "--config.file=prometheus.yml", "--log.level=error"],
      args: [`--web.listen-address=127.0.0.1:${port}`, "--storage.tsdb.path=data"],
      cwd: home.path,
    });

    /** How many series an expression has now; all of them once they have values. */
    async function seriesOf(expr: string): Promise<number> {
      const query = expr
        .replaceAll("$job", "plant-store")
        .replaceAll("$instance", ".*")
        .replaceAll("$__rate_interval", "10s");
      const url = `http://127.0.0.1:${port}/api/v1/query?${new URLSearchParams({ query })}`;
      const response = await fetch(url).catch(() => undefined);
      // It does not listen yet, or reads what it has.
      if (response === undefined || response.status === 503) return 0;
      const { status, data, error } = (await response.json()) as Answer;
      expect({ query, status, error }).toMatchObject({ status: "success" });
      return data?.result.filter(({ value: [, value] }) => value !== "NaN").length ?? 0;
    }

    const waiting = new Set(
      panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr }))),
    );
    expect(waiting.size).toBeGreaterThan(15);
    const deadline = performance.now() + TEST_TIMEOUT_MS / 2;
    for (let id = 1; waiting.size > 0 && performance.now() < deadline; id++) {
      expect(prometheus.child.exitCode).toBeNull();
      for (const { url } of [onSqlite, onPostgres]) {
        expect((await post(url, jsonOf(fern({ id })))).status).toBe(200);
      }
      for (const panel of waiting) if ((await seriesOf(panel.expr)) > 0) waiting.delete(panel);
    }
    expect([...waiting]).toEqual([]);
  });
});

interface Answer {
  readonly status: string;
  readonly error?: string;
  readonly data?: { readonly result: readonly { readonly value: readonly [number, string] }[] };
}
