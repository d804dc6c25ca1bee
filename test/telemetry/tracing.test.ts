import { afterEach, expect, test } from "bun:test";
import { hostname } from "node:os";

import { accepted } from "../../src/auth/authenticate.ts";
import { memoryStore } from "../../src/database/memory.ts";
import { ConfigError, PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../src/group_commit/plant_store.ts";
import type { AppOptions } from "../../src/http/app.ts";
import { startTracing } from "../../src/telemetry/tracing.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { fern, ivy, TEXT } from "../support/plants.ts";
import { startCollector } from "../support/tracing_collector.ts";

afterEach(() => {
  for (const name of Object.keys(process.env))
    if (name.startsWith("OTEL_")) delete process.env[name];
});

const UNSET = 0;
const ERROR = 2;

/** Tracing that sends to a collector, and what failed of that. */
function tracingTo(url: string) {
  const failures: string[] = [];
  const tracing = startTracing({
    endpoint: new URL(`${url}/v1/traces`),
    serviceName: "greenhouse",
    serviceVersion: "1.2.3",
    warn: (message, { reason, variables }) => failures.push(`${message}: ${reason ?? variables}`),
  });
  return { failures, tracing };
}

/** Sends requests to a traced app, all at once, and returns what the collector received of them. */
async function traced(requests: readonly Request[], options: Partial<AppOptions> = {}) {
  using collector = startCollector();
  const { failures, tracing } = tracingTo(collector.url);
  const { trace, onResponse, close } = tracing;
  const fetch = trace(testApp({ observer: { onError() {}, onResponse }, ...options }).fetch);

  await Promise.all(requests.map((request) => fetch(request)));
  await close();
  expect(failures).toEqual([]);

  return collector;
}

function get(path: string, headers: Record<string, string> = {}): Request {
  return new Request(`http://localhost:3000${path}`, { headers });
}

test("each of many requests at once is a span of its own, with the response's status and request id", async () => {
  const cases: readonly [Request, status: number, route?: string][] = [
    [postPlant(fern()), 200, "/plants"],
    [postPlant(ivy()), 409, "/plants"],
    [postPlant("{"), 400, "/plants"],
    [postPlant(fern(), { authorization: null }), 401, "/plants"],
    [get("/swagger"), 404],
    [get("/made-up"), 404],
    [new Request("http://localhost:3000/plants", { method: "PATCH" }), 405, "/plants"],
    [get("/readyz"), 503, "/readyz"],
  ];

  for (const [index, [request]] of cases.entries()) request.headers.set("x-request-id", `${index}`);
  const ready = async () => Promise.reject(new PlantStoreError("storage_unavailable"));
  const requests = cases.map(([request]) => request);
  const { spans } = await traced(requests, { ready });

  const expected = cases.map(([{ method }, status, route], index) => ({
    name: route === undefined ? method : `${method} ${route}`,
    status: status >= 500 ? ERROR : UNSET,
    attributes: {
      "http.request.method": method,
      "http.response.status_code": status,
      "url.scheme": "http",
      ...(route !== undefined && { "http.route": route, "url.path": route }),
      ...(status >= 500 && { "error.type": String(status) }),
      ...([200, 400, 409].includes(status) && route === "/plants" && { "user.id": "static:1" }),
      "plant_store.request_id": `${index}`,
    },
    kind: 2,
    traceId: expect.stringMatching(/^[\da-f]{32}$/),
    spanId: expect.stringMatching(/^[\da-f]{16}$/),
    parentSpanId: "",
  }));

  const requestId = "plant_store.request_id";
  expect(
    spans.toSorted((a, b) => Number(a.attributes[requestId]) - Number(b.attributes[requestId])),
  ).toEqual(expected);
  expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(cases.length);
});

test("a span says whose token it was: a subject of an issuer is not the stored token of that name", async () => {
  const issuer = "https://id.example.org/";
  const authenticate = (token: string) =>
    token === "of-the-issuer" ? { ...accepted("greenhouse"), issuer } : accepted("greenhouse");
  const requests = ["of-the-issuer", "stored"].map((token) =>
    postPlant(fern(), { authorization: `Bearer ${token}` }),
  );
  const { spans } = await traced(requests, { authenticate });

  const callers = spans
    .filter(({ name }) => name === "POST /plants")
    .map(({ attributes }) => [attributes["user.id"], attributes["plant_store.issuer"]]);
  expect(callers.toSorted()).toEqual([
    ["greenhouse", undefined],
    ["greenhouse", issuer],
  ]);
});

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

test.each([
  ["of this version", `00-${TRACE_ID}-${PARENT}-01`, PARENT],
  ["without a trace", `00-${"0".repeat(32)}-${PARENT}-01`, ""],
  ["in capitals", `00-${TRACE_ID.toUpperCase()}-${PARENT}-01`, ""],
])(
  "a trace goes on where the client began it: a traceparent %s",
  async (_what, traceparent, parentSpanId) => {
    const { spans } = await traced([get("/plants", { traceparent })]);
    expect(spans.map((span) => span.parentSpanId)).toEqual(
      parentSpanId === undefined ? [] : [parentSpanId],
    );
    expect(spans.some(({ traceId }) => traceId === TRACE_ID)).toBe(parentSpanId === PARENT);
  },
);

test("no token, plant, query, made-up path or other header leaves in a span, and no cause of an error", async () => {
  const secret = {
    authorization: "Bearer secret-0123456789",
    cookie: "secret",
    tracestate: "a=secret",
    baggage: "a=secret",
  };

  const { requests, resources, spans } = await traced(
    [
      postPlant(fern({ [TEXT]: "secret" })),
      postPlant('{"secret": '),
      postPlant(fern({ id: 2n }), { ...secret, traceparent: `00-${TRACE_ID}-${PARENT}-01` }),
      get("/plants?access_token=secret", secret),
      get("/secret/path"),
      get("/secret/path", { host: "secret secret" }),
      get("/readyz"),
    ],
    { ready: async () => Promise.reject(new Error("secret cause")) },
  );

  expect(spans).toHaveLength(7);
  expect(resources).toEqual([
    {
      "service.name": "greenhouse",
      "service.version": "1.2.3",
      "service.instance.id": expect.stringMatching(/^[\da-f-]{36}$/),
      "host.name": hostname(),
      "telemetry.sdk.name": "opentelemetry",
      "telemetry.sdk.language": "nodejs",
      "telemetry.sdk.version": expect.any(String),
    },
  ]);

  expect(requests.map(({ path }) => path)).toEqual(["/v1/traces"]);
  for (const word of ["secret", TOKEN])
    expect(requests.map(({ text }) => text).join()).not.toContain(word);
});

test.each<{ sampler: string; ratio?: string; sampled: boolean[] }>([
  { sampler: "always_on", sampled: [true, true, true] },
  { sampler: "always_off", sampled: [false, false, false] },
  { sampler: "traceidratio", ratio: "0", sampled: [false, false, false] },
  { sampler: "traceidratio", sampled: [true, true, true] },
  { sampler: "parentbased_always_on", sampled: [true, true, false] },
  { sampler: "parentbased_always_off", sampled: [false, true, false] },
  { sampler: "parentbased_traceidratio", ratio: "0", sampled: [false, true, false] },
  { sampler: "Always_Off", sampled: [false, false, false] },
  { sampler: "", sampled: [true, true, false] },
])(
  "OTEL_TRACES_SAMPLER=$sampler, OTEL_TRACES_SAMPLER_ARG=$ratio",
  async ({ sampler, ratio, sampled }) => {
    Object.assign(process.env, {
      OTEL_TRACES_SAMPLER: sampler,
      OTEL_TRACES_SAMPLER_ARG: ratio ?? "",
    });

    const parents = [
      {},
      { traceparent: `00-${TRACE_ID}-${PARENT}-01` },
      { traceparent: `00-${TRACE_ID}-${PARENT}-00` },
    ];
    const { spans } = await traced(
      parents.map((headers, index) => get("/plants", { ...headers, "x-request-id": `${index}` })),
    );
    const ids = spans.map(({ attributes }) => attributes["plant_store.request_id"]);
    expect(parents.map((_headers, index) => ids.includes(String(index)))).toEqual(sampled);
  },
);

test("OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_HEADERS are sent", async () => {
  Object.assign(process.env, {
    OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test,service.name=other",
    OTEL_EXPORTER_OTLP_HEADERS: "x-api-key=key-of-the-collector",
  });

  const { requests, resources } = await traced([get("/plants")]);
  expect(requests[0]?.headers.get("x-api-key")).toBe("key-of-the-collector");
  expect(resources).toMatchObject([
    { "deployment.environment.name": "test", "service.name": "greenhouse" },
  ]);
});

test("the name of a span has no method that a client makes up, and an attribute has it", async () => {
  const propfind = new Request("https://localhost:3000/plants", { method: "PROPFIND" });
  const { spans } = await traced([propfind]);
  expect(spans).toMatchObject([
    {
      name: "HTTP /plants",
      attributes: {
        "http.request.method": "_OTHER",
        "http.request.method_original": "PROPFIND",
        "url.scheme": "https",
        "url.path": "/plants",
      },
    },
  ]);
});

test("a probe and a scrape are no spans, unless they fail", async () => {
  let isReady = true;
  const ready = async () => {
    if (!isReady) throw new PlantStoreError("storage_unavailable");
  };
  using collector = startCollector();
  const { tracing } = tracingTo(collector.url);
  const observer = { onError() {}, onResponse: tracing.onResponse };
  const renderMetrics = async () => "";
  const fetch = tracing.trace(testApp({ observer, ready, renderMetrics }).fetch);

  const scrape = () => get("/metrics", { authorization: `Bearer ${TOKEN}` });
  for (const request of [get("/livez"), get("/readyz"), scrape()])
    expect((await fetch(request)).status).toBe(200);
  isReady = false;
  expect((await fetch(get("/readyz"))).status).toBe(503);
  await tracing.close();

  expect(collector.spans.map(({ name }) => name)).toEqual(["GET /readyz"]);
});

test("the spans name the version of their attributes", async () => {
  const { requests } = await traced([get("/plants")]);
  expect(requests[0]?.text).toContain("https://opentelemetry.io/schemas/1.28.0");
});

test("spans that cannot be sent are counted, and the failure names the collector", async () => {
  process.env["OTEL_BSP_MAX_QUEUE_SIZE"] = "2";
  process.env["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "2";
  using refusing = Bun.serve({ port: 0, fetch: () => new Response("", { status: 403 }) });
  const url = `http://127.0.0.1:${refusing.port}`;
  const { failures, tracing } = tracingTo(url);
  const fetch = tracing.trace(testApp().fetch);
  await Promise.all(Array.from({ length: 5 }, () => fetch(get("/plants"))));
  await tracing.close();

  expect(tracing.metrics()).toMatchObject([{ name: "plant_store_spans_lost_total", value: 5 }]);
  expect(failures.at(-1)).toEndWith(` (${url}/v1/traces)`);
});

test("a span below that of the request says where the plant waited", async () => {
  using collector = startCollector();
  const { tracing } = tracingTo(collector.url);
  const memory = memoryStore();
  let batches = 0;
  const begun = Promise.withResolvers<void>();
  const queued = Promise.withResolvers<void>();

  const store: PlantStore = {
    ...memory,
    async add(plants) {
      begun.resolve();
      await queued.promise;
      if (++batches === 3) throw new PlantStoreError("storage_unavailable");
      await Bun.sleep(30);
      return memory.add(plants, { timeoutMs: 1 });
    },
  };
  const plants = tracing.tracePlants((timed) => groupCommit(timed))(store, 1);
  const { onResponse } = tracing;
  const app = testApp({ plants, observer: { onError() {}, onResponse } });
  const fetch = tracing.trace(app.fetch);

  const sentAt = performance.now();
  const first = fetch(postPlant(fern()));
  await begun.promise;
  const firstWait = performance.now() - sentAt;

  // These wait for the commit of the first one, which ends after it was held for longer.
  const others = [2, 3, 4].map((id) => fetch(postPlant(fern({ id }))));
  while (plants.size() < 4) await Bun.sleep(1);
  await Bun.sleep(2 * firstWait);
  queued.resolve();
  await Promise.all([first, ...others]);
  await fetch(postPlant(fern({ id: 5n })));
  await tracing.close();

  const requests = collector.spans.filter(({ name }) => name === "POST /plants");
  const commits = collector.spans.filter(({ name }) => name === "commit");
  expect(commits.map(({ parentSpanId }) => parentSpanId).toSorted()).toEqual(
    requests.map(({ spanId }) => spanId).toSorted(),
  );

  const sizes = commits.map(({ attributes }) => attributes["plant_store.batch.size"]);
  expect(sizes).toEqual([1, 3, 3, 3, 1]);
  expect(commits.map(({ status }) => status)).toEqual([UNSET, UNSET, UNSET, UNSET, ERROR]);
  expect(commits.at(-1)?.attributes["error.type"]).toBe("storage_unavailable");

  // A timer fires a millisecond early at most.
  for (const { attributes } of commits.slice(0, 4))
    expect(Number(attributes["plant_store.commit.duration"])).toBeGreaterThan(0.028);
  const waits = commits.map(({ attributes }) => Number(attributes["plant_store.queue.duration"]));
  expect(waits[0]).toBeLessThanOrEqual(firstWait / 1_000);
  expect(Math.min(...waits.slice(1, 4))).toBeGreaterThan(firstWait / 1_000);
});

test("of a collector that returns a page, the warning does not have the page", async () => {
  using page = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: () => new Response(`<!doctype html>${"x".repeat(300_000)}`),
  });
  const { failures, tracing } = tracingTo(`http://127.0.0.1:${page.port}`);
  await tracing.trace(testApp().fetch)(get("/plants"));
  await tracing.close();

  expect(failures).toEqual([expect.stringContaining("could not deserialize response")]);
  expect(failures.join().length).toBeLessThan(500);
});

test("what the collector did not take of an export is reported", async () => {
  // ExportTraceServiceResponse: partial_success (1) with rejected_spans (1) and error_message (2).
  const partialSuccess = Uint8Array.of(0x0a, 6, 0x08, 1, 0x12, 2, 0x6e, 0x6f);
  using collector = startCollector(partialSuccess);
  const { failures, tracing } = tracingTo(collector.url);
  await tracing.trace(testApp().fetch)(get("/plants"));
  await tracing.close();

  expect(failures).toEqual([expect.stringMatching(/Partial Success.*"errorMessage":"no"/)]);
});

test.each([
  ["OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"],
  ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"],
  ["OTEL_BSP_SCHEDULE_DELAY", "-1", "an integer from 1 to 2147483647"],
  ["OTEL_BSP_EXPORT_TIMEOUT", "1e12", "an integer from 1 to 2147483647"],
  ["OTEL_BSP_MAX_QUEUE_SIZE", "0", "an integer from 1 to 2147483647"],
  ["OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many", "an integer from 1 to 2147483647"],
  ["OTEL_TRACES_SAMPLER_ARG", "2", "a number from 0 to 1"],
  ["OTEL_TRACES_SAMPLER_ARG", "half", "a number from 0 to 1"],
  [
    "OTEL_TRACES_SAMPLER",
    "jaeger_remote",
    "always_on, always_off or traceidratio, each alone or after parentbased_",
  ],
  ["OTEL_PROPAGATORS", "b3", "tracecontext, baggage or none"],
])("%s=%s is refused: expected %s", (name, value, expected) => {
  process.env[name] = value;
  expect(() => tracingTo("http://127.0.0.1:9")).toThrow(
    new ConfigError(`Cannot use ${name}=${value}: expected ${expected}`),
  );
});

test("OTEL_PROPAGATORS=none begins a trace of its own", async () => {
  process.env["OTEL_PROPAGATORS"] = "none";
  const traceparent = `00-${TRACE_ID}-${PARENT}-01`;
  const { spans } = await traced([get("/plants", { traceparent })]);
  expect(spans.map(({ parentSpanId }) => parentSpanId)).toEqual([""]);
});

test("variables that have nothing to set here are named", () => {
  Object.assign(process.env, { OTEL_METRICS_EXPORTER: "otlp", OTEL_LOGS_EXPORTER: "none" });
  expect(tracingTo("http://127.0.0.1:9").failures).toEqual([
    "OpenTelemetry variables ignored: OTEL_METRICS_EXPORTER",
  ]);
});
