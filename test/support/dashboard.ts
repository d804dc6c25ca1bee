import { expect } from "bun:test";
import { join } from "node:path";

import { post, TOKEN } from "./client.ts";
import { fern, jsonOf } from "./plants.ts";
import { emptyDirectory, freePort, ROOT, start, TEST_TIMEOUT_MS } from "./program.ts";

/** A panel of the dashboard. */
export interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

/** The panels of the dashboard. */
export const { panels: PANELS } = (await Bun.file(
  join(ROOT, "src/telemetry/dashboard.json"),
).json()) as { panels: readonly Panel[] };

/** The certificate of `localhost`, without its endings. */
export const CERTIFICATE = join(ROOT, "test/support/tls/localhost");

/** The settings of a server on SQLite that has every metric: with a certificate, for example. */
export const EVERY_METRIC = {
  TLS_CERT_FILE: `${CERTIFICATE}.crt`,
  TLS_KEY_FILE: `${CERTIFICATE}.key`,
  AUTH_JWKS_URL: "http://127.0.0.1:9/jwks",
  AUTH_ISSUER: "http://127.0.0.1/",
  AUTH_AUDIENCE: "plant-store",
  OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9",
};

/** Expects that every one of these panels has values, by a real Prometheus, of servers that are used. */
export async function expectValues(
  panels: readonly Panel[],
  servers: readonly { readonly url: string }[],
): Promise<void> {
  using home = emptyDirectory();
  const jobs = servers.map(({ url }) => ({
    job_name: url,
    scheme: new URL(url).protocol.slice(0, -1),
    tls_config: { insecure_skip_verify: true },
    authorization: { credentials: TOKEN },
    static_configs: [{ targets: [new URL(url).host] }],
    relabel_configs: [{ target_label: "job", replacement: "plant-store" }],
  }));
  const config = { global: { scrape_interval: "1s" }, scrape_configs: jobs };
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

  const tls = { ca: Bun.file(`${CERTIFICATE}.crt`) };
  const waiting = new Set(
    panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr }))),
  );
  const deadline = performance.now() + TEST_TIMEOUT_MS / 2;
  for (let id = 1; waiting.size > 0 && performance.now() < deadline; id++) {
    expect(prometheus.child.exitCode).toBeNull();
    for (const { url } of servers) {
      const response = await post(url, jsonOf(fern({ id })), { tls });
      expect(response.status).toBe(200);
      await post(url, "{", { tls });
    }
    for (const panel of waiting) if ((await seriesOf(panel.expr)) > 0) waiting.delete(panel);
    // It scrapes once a second.
    await Bun.sleep(250);
  }
  expect([...waiting]).toEqual([]);
}

interface Answer {
  readonly status: string;
  readonly error?: string;
  readonly data?: { readonly result: readonly { readonly value: readonly [number, string] }[] };
}
