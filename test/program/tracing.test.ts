import { expect, setDefaultTimeout, test } from "bun:test";
import { CLOSED_PORT, post, TOKEN } from "../support/client.ts";
import { sendHalf } from "../faults/health.ts";
import { startCollector } from "../support/collector.ts";
import { emptyDirectory, exitCodeOf, freePort, TEST_TIMEOUT_MS, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function traced(endpoint: string, more: Record<string, string> = {}) {
  return { AUTH_TOKENS: TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...more };
}

/** Sends at once what ended, so that no test waits for the usual five seconds. */
const SOON = { OTEL_BSP_SCHEDULE_DELAY: "10" };

test.concurrent("what ended just before a stop is sent", async () => {
  using collector = startCollector();
  const env = traced(collector.url, { OTEL_BSP_SCHEDULE_DELAY: "3600000", OTEL_SERVICE_NAME: "greenhouse" });
  await using server = await startServer({ env });
  await fetch(`${server.url}/livez`);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
  expect(collector.spans.map(({ name }) => name)).toEqual(["GET /livez"]);
  expect(collector.resources).toMatchObject([{ "service.name": "greenhouse" }]);
});

test.concurrent("a collector that never answers does not hold up the stop", async () => {
  using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const env = traced(`http://127.0.0.1:${silent.port}`, { SHUTDOWN_TIMEOUT_MS: "5000", ...SOON });
  await using server = await startServer({ env });
  await fetch(`${server.url}/livez`);
  server.child.kill("SIGTERM");
  // The exporter itself would wait for ten seconds, and try again.
  expect(await exitCodeOf(server.child, 8_000)).toBe(0);
  expect(await server.stderr.end).toContain("the collector did not accept the last spans in time");
});

test.concurrent("a collector that is gone or refuses costs a warning, and neither a plant nor the stop", async () => {
  using refusing = Bun.serve({ port: 0, fetch: () => new Response("a whole page", { status: 403 }) });
  for (const port of [CLOSED_PORT, refusing.port]) {
    await using server = await startServer({ env: traced(`http://127.0.0.1:${port}`, SOON) });
    expect((await post(server.url)).status).toBe(200);
    await server.stderr.until(/"Trace export failed".*"reason":"[^"]+"/);
    server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(0);
    expect(await server.stderr.end).not.toContain("a whole page");
  }
});

test.concurrent("the span of a client that went away is no error", async () => {
  using collector = startCollector();
  await using server = await startServer({ env: traced(collector.url, SOON) });
  // The server waits for the rest of the body when it has answered another request.
  const client = await sendHalf(server.url);
  client.close("reset");
  await collector.until(2);
  expect(collector.spans.map(({ status }) => status)).toEqual([0, 0]);
});

test.concurrent("tracing sends no secret of the command line or the environment, and listens nowhere", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  const metricsPort = freePort();
  await using server = await startServer({
    cwd: directory.path,
    // The flag replaces the variable: this server needs no PostgreSQL.
    args: ["--database", "file:secret-plants.db"],
    env: traced(collector.url, {
      ...SOON,
      DATABASE_URL: "postgres://greenhouse:secret-0123456789@127.0.0.1/plants",
      OTEL_METRICS_EXPORTER: "prometheus",
      OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
    }),
  });
  expect((await post(server.url)).status).toBe(200);
  await collector.until(1);
  const sent = collector.requests.map(({ text }) => text).join();
  for (const secret of ["secret", TOKEN, directory.path]) expect(sent).not.toContain(secret);
  await expect(fetch(`http://127.0.0.1:${metricsPort}/metrics`)).rejects.toThrow();
});
