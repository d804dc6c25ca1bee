import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";

import { version } from "../../src/build/version.ts";
import { sendHalf } from "../faults/health.ts";
import { CLOSED_PORT, post, TOKEN } from "../support/client.ts";
import {
  emptyDirectory,
  exitCodeOf,
  freePort,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { startCollector } from "../support/tracing_collector.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function traced(endpoint: string, more: Record<string, string> = {}) {
  return { AUTH_TOKENS: TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...more };
}

test.concurrent("what ended just before a stop is sent", async () => {
  using collector = startCollector();
  await using server = await startServer({
    env: traced(collector.url, { OTEL_SERVICE_NAME: "greenhouse" }),
  });
  await fetch(`${server.url}/plants`);

  expect(await server.stop()).toBe(0);
  expect(collector.spans.map(({ name }) => name)).toEqual(["GET /plants"]);
  expect(collector.resources).toMatchObject([
    { "service.name": "greenhouse", "service.version": version() },
  ]);
});

test.concurrent.each([
  ["OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"],
  ["OTEL_TRACES_EXPORTER", "zipkin", "otlp or none"],
])(
  "%s=%s is refused in one line, by serve and by its check, and makes no database",
  async (name, value, expected) => {
    using home = emptyDirectory();
    const env = traced("http://127.0.0.1:9", { [name]: value });
    for (const flags of [["--port", "0"], ["--check"]])
      expect(await runToEnd({ args: ["serve", ...flags], env, cwd: home.path })).toEqual({
        exitCode: 2,
        stdout: "",
        stderr: `Cannot use ${name}=${value}: expected ${expected}\n`,
      });
    expect(readdirSync(home.path)).toEqual([]);
  },
);

test.concurrent("serve --check warns of a variable that the exporter does not obey", async () => {
  using home = emptyDirectory();
  const env = traced("http://127.0.0.1:9", { OTEL_EXPORTER_OTLP_CERTIFICATE: "missing.pem" });
  const { exitCode, stderr } = await runToEnd({ args: ["serve", "--check"], env, cwd: home.path });
  expect(exitCode).toBe(0);
  expect(stderr).toContain("OpenTelemetry warning: Failed to read root certificate file\n");
});

test.concurrent.each([
  [{ OTEL_SDK_DISABLED: "True", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }],
  [{ OTEL_TRACES_EXPORTER: "none" }],
])("with %j nothing is sent", async (more) => {
  using collector = startCollector();
  await using server = await startServer({ env: traced(collector.url, more) });
  expect((await post(server.url)).status).toBe(200);
  expect(await server.stop()).toBe(0);
  expect(collector.requests).toEqual([]);
});

test.concurrent("a span of a plant has one below it for its commit", async () => {
  using collector = startCollector();
  // The endpoint of traces wins, and is taken as it is.
  const env = traced("http://127.0.0.1:9", {
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces`,
  });
  await using server = await startServer({ env });
  expect((await post(server.url)).status).toBe(200);
  expect(await server.stop()).toBe(0);

  const [commit, request] = collector.spans;
  expect([commit?.name, request?.name]).toEqual(["commit", "POST /plants"]);
  expect(commit?.parentSpanId).toBe(String(request?.spanId));
  expect(commit?.attributes).toMatchObject({ "plant_store.batch.size": 1 });
});

test.concurrent("a line of the log about a request has the id of its trace", async () => {
  using collector = startCollector();
  const env = { ...traced(collector.url), ACCESS_LOG: "on" };
  await using server = await startServer({ env });
  expect((await post(server.url)).status).toBe(200);
  expect((await post(server.url, undefined, { token: "unknown-token-0123" })).status).toBe(401);
  expect(await server.stop()).toBe(0);

  const lines = (await server.stderr.end)
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const logged = lines.filter(({ requestId }) => requestId !== undefined);
  const sent = collector.spans.filter(({ name }) => name === "POST /plants");
  expect(logged.map(({ message }) => message)).toEqual([
    "Request completed",
    "Refused credentials",
    "Request completed",
  ]);
  const idOf = (status: number) =>
    sent.find(({ attributes }) => attributes["http.response.status_code"] === status)?.traceId;
  expect(logged.map(({ traceId }) => traceId)).toEqual([idOf(200), idOf(401), idOf(401)]);
});

test.concurrent("a collector that never answers does not hold up the stop", async () => {
  using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  // The exporter itself would wait for ten minutes.
  const env = traced(`http://127.0.0.1:${silent.port}`, {
    OTEL_EXPORTER_OTLP_TIMEOUT: "600000",
    SHUTDOWN_TIMEOUT_MS: "5000",
  });
  await using server = await startServer({ env });

  await fetch(`${server.url}/plants`);
  server.child.kill("SIGTERM");

  expect(await exitCodeOf(server.child)).toBe(0);
  expect(await server.stderr.end).toContain("the collector did not accept the last spans in time");
});

test.concurrent(
  "a collector that is gone or refuses causes a warning, loses no plant, and delays no stop",
  async () => {
    using refusing = Bun.serve({
      port: 0,
      fetch: () => new Response("a whole page", { status: 403 }),
    });

    for (const port of [CLOSED_PORT, refusing.port]) {
      await using server = await startServer({ env: traced(`http://127.0.0.1:${port}`) });
      expect((await post(server.url)).status).toBe(200);
      expect(await server.stop()).toBe(0);
      const log = await server.stderr.end;
      expect(log).toMatch(
        new RegExp(
          `"Trace export failed".*"reason":"[^"]+ \\(http://127.0.0.1:${port}/v1/traces\\)"`,
        ),
      );
      expect(log).not.toContain("a whole page");
    }
  },
);

test.concurrent("the span of a client that went away is not an error", async () => {
  using collector = startCollector();
  await using server = await startServer({ env: traced(collector.url) });

  // The server waits for the rest of the body when it has answered another request.
  const client = await sendHalf(server.url);
  client.close("reset");

  // Without a stop, spans are sent too.
  await collector.until(1);
  expect(collector.spans.map(({ name, status }) => [name, status])).toEqual([["POST /plants", 0]]);
});

test.concurrent(
  "tracing sends no secret of the command line or the environment, and listens nowhere",
  async () => {
    using collector = startCollector();
    const metricsPort = freePort();
    await using server = await startServer({
      // The flag replaces the variable: this server needs no PostgreSQL.
      args: ["--database", "file:secret-plants.db"],
      env: traced(collector.url, {
        DATABASE_URL: "postgres://greenhouse:secret-0123456789@127.0.0.1/plants",
        OTEL_METRICS_EXPORTER: "prometheus",
        OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
      }),
    });

    expect((await post(server.url)).status).toBe(200);
    await expect(fetch(`http://127.0.0.1:${metricsPort}/metrics`)).rejects.toThrow();
    expect(await server.stop()).toBe(0);
    expect(collector.spans).toHaveLength(2);

    const sent = collector.requests.map(({ text }) => text).join();
    for (const secret of ["secret", TOKEN, server.cwd]) expect(sent).not.toContain(secret);
  },
);
