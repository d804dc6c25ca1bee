import { expect, test } from "bun:test";
import { hostname } from "node:os";
import type { AppOptions } from "../../src/http/app.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { startTracing } from "../../src/telemetry/tracing.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { startCollector } from "../support/collector.ts";

const UNSET = 0;
const ERROR = 2;

/** Sends requests to a traced app one after the other, and returns what the collector received of them. */
async function traced(requests: readonly Request[], options: Partial<AppOptions> = {}) {
  using collector = startCollector();
  const failures: string[] = [];
  const { trace, onResponse, close } = startTracing({
    endpoint: new URL(`${collector.url}/`),
    serviceName: "greenhouse",
    onFailure: (reason) => failures.push(reason),
  });
  const fetch = trace(testApp({ observer: { onError() {}, onResponse }, ...options }).fetch);
  const responses: Response[] = [];
  for (const request of requests) responses.push(await fetch(request));
  await close();
  expect(failures).toEqual([]);
  return { ...collector, responses };
}

function get(path: string, headers: Record<string, string> = {}): Request {
  return new Request(`http://localhost:3000${path}`, { headers });
}

test("each request is a span of its own, with the response's status and request id", async () => {
  const requests = [
    postPlant({ id: 1, name: "Fern" }),
    postPlant({ id: 1, name: "Ivy" }),
    postPlant("{"),
    postPlant({ id: 1, name: "Fern" }, { authorization: null }),
    get("/livez"),
    get("/made-up"),
    get("/plants"),
    get("/readyz"),
  ];
  const notReady = async () => Promise.reject(new PlantStoreError("storage_unavailable"));
  const { spans, responses } = await traced(requests, { ready: notReady });
  const attributes = (method: string, code: number, route?: string) => ({
    "http.request.method": method,
    "http.response.status_code": code,
    ...(route !== undefined && { "http.route": route }),
    ...(code >= 500 && { "error.type": String(code) }),
  });
  const expected = [
    { name: "POST /plants", status: UNSET, attributes: attributes("POST", 200, "/plants") },
    { name: "POST /plants", status: UNSET, attributes: attributes("POST", 409, "/plants") },
    { name: "POST /plants", status: UNSET, attributes: attributes("POST", 400, "/plants") },
    { name: "POST /plants", status: UNSET, attributes: attributes("POST", 401, "/plants") },
    { name: "GET /livez", status: UNSET, attributes: attributes("GET", 200, "/livez") },
    { name: "GET", status: UNSET, attributes: attributes("GET", 404) },
    { name: "GET /plants", status: UNSET, attributes: attributes("GET", 405, "/plants") },
    { name: "GET /readyz", status: ERROR, attributes: attributes("GET", 503, "/readyz") },
  ];
  const requestIds = responses.map(({ headers }) => String(headers.get("x-request-id")));
  expect(spans).toEqual(
    expected.map(({ name, status, attributes }, index) => ({
      name,
      status,
      attributes: { ...attributes, "plant_store.request_id": String(requestIds[index]) },
      kind: 2,
      traceId: expect.stringMatching(/^[\da-f]{32}$/),
      parentSpanId: "",
    })),
  );
  expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(requests.length);
});

test("concurrent requests do not mix up their spans", async () => {
  using collector = startCollector();
  const { trace, onResponse, close } = startTracing({
    endpoint: new URL(collector.url),
    serviceName: "greenhouse",
    onFailure() {},
  });
  const fetch = trace(testApp({ observer: { onError() {}, onResponse } }).fetch);
  const ids = Array.from({ length: 50 }, (_, id) => id);
  await Promise.all(ids.map((id) => fetch(postPlant({ id, name: "Fern" }, headersOf(id)))));
  await close();
  const told = collector.spans.map(({ traceId, attributes }) => [traceId, attributes["plant_store.request_id"]]);
  expect(told.toSorted()).toEqual(ids.map((id) => [traceIdOf(id), `request-${id}`]).toSorted());
});

function headersOf(id: number) {
  return { "x-request-id": `request-${id}`, traceparent: `00-${traceIdOf(id)}-00f067aa0ba902b7-01` };
}

function traceIdOf(id: number): string {
  return String(id + 1).padStart(32, "0");
}

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
])("a trace goes on where the client began it: a traceparent %s", async (_what, traceparent, parentSpanId) => {
  const { spans } = await traced([get("/livez", { traceparent })]);
  expect(spans.map((span) => span.parentSpanId)).toEqual(parentSpanId === undefined ? [] : [parentSpanId]);
  expect(spans.some(({ traceId }) => traceId === TRACE_ID)).toBe(parentSpanId === PARENT);
});

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
      "host.name": hostname(),
      "telemetry.sdk.name": "opentelemetry",
      "telemetry.sdk.language": "nodejs",
      "telemetry.sdk.version": expect.any(String),
    },
  ]);
  expect(requests.map(({ path }) => path)).toEqual(["/v1/traces"]);
  for (const word of ["secret", TOKEN]) expect(requests.map(({ text }) => text).join()).not.toContain(word);
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
])("OTEL_TRACES_SAMPLER=$sampler, OTEL_TRACES_SAMPLER_ARG=$ratio", async ({ sampler, ratio, sampled }) => {
  using _ = environment({ OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: ratio ?? "" });
  const parents = [{}, { traceparent: `00-${TRACE_ID}-${PARENT}-01` }, { traceparent: `00-${TRACE_ID}-${PARENT}-00` }];
  const { spans } = await traced(
    parents.map((headers, index) => get("/livez", { ...headers, "x-request-id": `${index}` })),
  );
  const ids = spans.map(({ attributes }) => attributes["plant_store.request_id"]);
  expect(parents.map((_headers, index) => ids.includes(String(index)))).toEqual(sampled);
});

test("OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_HEADERS are sent", async () => {
  using _ = environment({
    OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test,service.name=other",
    OTEL_EXPORTER_OTLP_HEADERS: "x-api-key=key-of-the-collector",
  });
  const { requests, resources } = await traced([get("/livez")]);
  expect(requests[0]?.headers.get("x-api-key")).toBe("key-of-the-collector");
  expect(resources).toMatchObject([{ "deployment.environment.name": "test", "service.name": "greenhouse" }]);
});

/** Sets variables until the end of the scope. */
function environment(variables: Readonly<Record<string, string>>): Disposable {
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, variables);
  return {
    [Symbol.dispose]() {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    },
  };
}
