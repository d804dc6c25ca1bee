import { afterEach, expect, test } from "bun:test";
import { hostname } from "node:os";

import { PlantStoreError } from "../../src/errors.ts";
import type { AppOptions } from "../../src/http/app.ts";
import { startTracing } from "../../src/telemetry/tracing.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { startCollector } from "../support/collector.ts";

afterEach(() => {
  for (const name of Object.keys(process.env))
    if (name.startsWith("OTEL_")) delete process.env[name];
});

const UNSET = 0;
const ERROR = 2;

/** Sends requests to a traced app, all at once, and returns what the collector received of them. */
async function traced(requests: readonly Request[], options: Partial<AppOptions> = {}) {
  using collector = startCollector();
  const failures: string[] = [];
  const { trace, onResponse, close } = startTracing({
    endpoint: new URL(`${collector.url}/`),
    serviceName: "greenhouse",
    serviceVersion: "1.2.3",
    onFailure: (reason) => failures.push(reason),
  });
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
    [postPlant({ id: 1, name: "Fern" }), 200, "/plants"],
    [postPlant({ id: 1, name: "Ivy" }), 409, "/plants"],
    [postPlant("{"), 400, "/plants"],
    [postPlant({ id: 1, name: "Fern" }, { authorization: null }), 401, "/plants"],
    [get("/livez"), 200, "/livez"],
    [get("/made-up"), 404],
    [get("/plants"), 405, "/plants"],
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
      ...(route !== undefined && { "http.route": route }),
      ...(status >= 500 && { "error.type": String(status) }),
      ...([200, 400, 409].includes(status) && route === "/plants" && { "user.id": "static:1" }),
      "plant_store.request_id": `${index}`,
    },
    kind: 2,
    traceId: expect.stringMatching(/^[\da-f]{32}$/),
    parentSpanId: "",
  }));

  const requestId = "plant_store.request_id";
  expect(
    spans.toSorted((a, b) => Number(a.attributes[requestId]) - Number(b.attributes[requestId])),
  ).toEqual(expected);
  expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(cases.length);
});

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

test.each([
  ["of this version", `00-${TRACE_ID}-${PARENT}-01`, PARENT],
  ["of a later version", `cc-${TRACE_ID}-${PARENT}-01-more`, PARENT],
  ["without a trace", `00-${"0".repeat(32)}-${PARENT}-01`, ""],
  ["without a span", `00-${TRACE_ID}-${"0".repeat(16)}-01`, ""],
  ["of the invalid version", `ff-${TRACE_ID}-${PARENT}-01`, ""],
  ["in capitals", `00-${TRACE_ID.toUpperCase()}-${PARENT}-01`, ""],
  ["repeated", `00-${TRACE_ID}-${PARENT}-01, 00-${TRACE_ID}-${PARENT}-01`, ""],
  ["of 15,000 characters", `cc-${TRACE_ID}-${PARENT}-01-${"a".repeat(15_000)}`, ""],
  ["that is not sampled", `00-${TRACE_ID}-${PARENT}-00`, undefined],
])(
  "a trace goes on where the client began it: a traceparent %s",
  async (_what, traceparent, parentSpanId) => {
    const { spans } = await traced([get("/livez", { traceparent })]);
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
      postPlant({ id: 1, name: "secret" }),
      postPlant('{"secret": '),
      postPlant({ id: 2, name: "Fern" }, { ...secret, traceparent: `00-${TRACE_ID}-${PARENT}-01` }),
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
  { sampler: "unknown", sampled: [true, true, false] },
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
      parents.map((headers, index) => get("/livez", { ...headers, "x-request-id": `${index}` })),
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

  const { requests, resources } = await traced([get("/livez")]);
  expect(requests[0]?.headers.get("x-api-key")).toBe("key-of-the-collector");
  expect(resources).toMatchObject([
    { "deployment.environment.name": "test", "service.name": "greenhouse" },
  ]);
});
