import { expect, setDefaultTimeout, test } from "bun:test";
import { CLOSED_PORT, post, TOKEN } from "../support/client.ts";
import { startCollector } from "../support/collector.ts";
import { emptyDirectory, exitCodeOf, TEST_TIMEOUT_MS, ROOT, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Sends at once what ended, so that no test waits for the usual five seconds. */
const SOON = { OTEL_BSP_SCHEDULE_DELAY: "10" };

function traced(endpoint: string, more: Record<string, string> = {}) {
  return { AUTH_TOKENS: TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...SOON, ...more };
}

test.concurrent("each request is a span, with the response's status and request id", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  await using server = await startServer({ cwd: directory.path, env: traced(collector.url) });
  const responses: Response[] = [];
  for (const request of [
    () => post(server.url, '{"id": 9007199254740993, "name": "Fern"}'),
    () => post(server.url, '{"id": 9007199254740993, "name": "Ivy"}'),
    () => post(server.url, "{"),
    () => post(server.url, "{}", { token: null }),
    () => fetch(`${server.url}/livez`),
    () => fetch(`${server.url}/made-up`),
    () => fetch(`${server.url}/plants`),
  ]) {
    responses.push(await request());
    await collector.until(responses.length);
  }
  const told = collector.requestSpans().map(({ name, attributes }) => ({
    name,
    status: attributes["http.response.status_code"],
    requestId: attributes["plant_store.request_id"],
  }));
  const requestIds = responses.map(({ headers }) => headers.get("x-request-id"));
  expect(told).toEqual(
    [
      { name: "POST /plants", status: 200 },
      { name: "POST /plants", status: 409 },
      { name: "POST /plants", status: 400 },
      { name: "POST /plants", status: 401 },
      { name: "GET /livez", status: 200 },
      { name: "GET", status: 404 },
      { name: "GET /plants", status: 405 },
    ].map((span, index) => ({ ...span, requestId: requestIds[index] })),
  );
  expect(responses.map(({ status }) => status)).toEqual(told.map(({ status }) => Number(status)));
  // What a client did wrong is no error of the server.
  expect(new Set(collector.requestSpans().map(({ status }) => status))).toEqual(new Set(["STATUS_CODE_UNSET"]));
  expect(collector.services).toEqual(new Set(["plant-store"]));
});

test.concurrent("a span that ends before its request is answered has the response's status all the same", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  // A refused request has six spans, and its own ends last: it is what sends them.
  const env = traced(collector.url, { OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "6", OTEL_BSP_SCHEDULE_DELAY: "3600000" });
  await using server = await startServer({ cwd: directory.path, env });
  // The very first sending waits for what the machine is called.
  for (const count of [1, 2]) {
    await fetch(`${server.url}/plants`, { method: "POST" });
    await collector.until(count);
  }
  expect(collector.requestSpans().map(({ attributes }) => attributes["http.response.status_code"])).toEqual([401, 401]);
});

test.concurrent("a trace goes on where the client began it", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  const env = traced(`${collector.url}/`, { OTEL_SERVICE_NAME: "greenhouse" });
  await using server = await startServer({ cwd: directory.path, env });
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await post(server.url, undefined, { headers: { traceparent, tracestate: "vendor=told", baggage: "key=told" } });
  await collector.until(1);
  expect(collector.requestSpans()).toMatchObject([
    { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", parentSpanId: "00f067aa0ba902b7" },
  ]);
  expect(collector.requests.map(({ text }) => text).join()).not.toContain("told");
  // The steps that Elysia takes are spans inside of it.
  expect(collector.spans.map(({ name }) => name)).toContain("authenticateBearer");
  expect(new Set(collector.spans.map(({ traceId }) => traceId)).size).toBe(1);
  expect(collector.services).toEqual(new Set(["greenhouse"]));
});

test.concurrent("what ended just before a stop is sent", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  const env = traced(collector.url, { OTEL_BSP_SCHEDULE_DELAY: "3600000" });
  await using server = await startServer({ cwd: directory.path, env });
  await fetch(`${server.url}/livez`);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
  expect(collector.requestSpans().map(({ name }) => name)).toEqual(["GET /livez"]);
});

test.concurrent("a collector that never answers does not hold up the stop", async () => {
  using directory = emptyDirectory();
  using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const env = traced(`http://127.0.0.1:${silent.port}`, { SHUTDOWN_TIMEOUT_MS: "5000" });
  await using server = await startServer({ cwd: directory.path, env });
  await fetch(`${server.url}/livez`);
  server.child.kill("SIGTERM");
  // The exporter itself would wait for ten seconds, and try again.
  expect(await exitCodeOf(server.child, 8_000)).toBe(0);
  expect(await server.stderr.end).toContain("the collector was too slow");
});

test.concurrent("the span of a client that went away is no error", async () => {
  using directory = emptyDirectory();
  using collector = startCollector();
  await using server = await startServer({ cwd: directory.path, env: traced(collector.url) });
  const { hostname, port } = new URL(server.url);
  const head = `POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Type: application/json`;
  const socket = await Bun.connect({ hostname, port: Number(port), socket: { data() {} } });
  socket.write(`${head}\r\nContent-Length: 1000\r\n\r\n{`);
  // The body is being waited for once another request is answered.
  await fetch(`${server.url}/livez`);
  socket.terminate();
  await collector.until(2);
  expect(collector.requestSpans().map(({ status }) => status)).toEqual(["STATUS_CODE_UNSET", "STATUS_CODE_UNSET"]);
});

test.concurrent("a collector that is gone costs a warning, and neither a plant nor the stop", async () => {
  using directory = emptyDirectory();
  await using server = await startServer({ cwd: directory.path, env: traced(`http://127.0.0.1:${CLOSED_PORT}`) });
  expect((await post(server.url)).status).toBe(200);
  await server.stderr.until(/"Traces not sent".*"reason":"[^"]+"/);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
});

// Not beside the others: it keeps a whole core busy.
test("the app answers the same under a trace, and no token, body or query leaves in one", async () => {
  using collector = startCollector();
  const files = ["http/app", "http/bearer_guard", "http/body", "http/plants", "http/observer", "http/home"];
  const child = Bun.spawn([process.execPath, "test", ...files.map((file) => `./test/${file}.test.ts`)], {
    cwd: ROOT,
    env: { ...process.env, TEST_TRACING: collector.url, ...SOON },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const output = await new Response(child.stderr).text();
  expect(output).toContain(" 0 fail");
  expect(await child.exited).toBe(0);
  expect(collector.requestSpans().length).toBeGreaterThan(100);
  const texts = collector.requests.map(({ text }) => text).join("\n");
  for (const secret of [TOKEN, "Fern", "access_token", "secret", "leak"]) expect(texts).not.toContain(secret);
  expect(new Set(collector.requests.map(({ path }) => path))).toEqual(new Set(["/v1/traces"]));
});
