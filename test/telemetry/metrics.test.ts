import { expect, spyOn, test } from "bun:test";
import { statSync } from "node:fs";

import { getMetricsFromIterator } from "prom2javascript";

import type { CompletedRequest } from "../../src/http/observer.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";

const ANSWERED = {
  path: "/plants",
  method: "POST",
  status: 200,
  requestId: "1",
  clientAddress: () => undefined,
};

test("another parser of Prometheus' text format reads the metrics that dashboards and alerts know", async () => {
  const metrics = createMetrics();
  for (const durationMs of [0.5, 0.6, 6_000]) metrics.countResponse({ ...ANSWERED, durationMs });
  metrics.countResponse({ ...ANSWERED, status: 409, error: 4091, durationMs: 1 });
  metrics.countResponse({ ...ANSWERED, path: 'a "b" \\ c', method: "GET", durationMs: 2.4 });
  metrics.countCommit({ outcomes: ["added", "added", "present", "conflict"], durationMs: 4 });
  metrics.countCommit({ outcomes: ["added"], durationMs: 0.75 });
  metrics.countBlocked(750);
  metrics.registerQueue({ size: () => 3, fill: () => 0.3 });
  metrics.register(() => [
    { name: "some_bytes", help: "Bytes of a \\ and a\nline", type: "gauge", value: 1.5 },
    { name: "some_total", help: "Large", type: "counter", value: 1e21 },
    { name: "node_ready", help: "One of two", type: "gauge", labels: { node: "1" }, value: 1 },
    { name: "node_ready", help: "One of two", type: "gauge", labels: { node: "2" }, value: 0 },
  ]);

  const parsed = await getMetricsFromIterator((await metrics.render()).split("\n").values());
  expect(parsed).toMatchObject({
    plant_store_plants_total: {
      type: "counter",
      data: [
        { labels: { outcome: "added" }, value: 3 },
        { labels: { outcome: "present" }, value: 1 },
        { labels: { outcome: "conflict" }, value: 1 },
      ],
    },
    plant_store_plants_by_token_total: {
      type: "counter",
      data: [],
    },
    plant_store_batch_plants: {
      type: "histogram",
      data: [{ labels: {}, count: 2, sum: 5, buckets: buckets(PLANTS, { 1: 1, 4: 2 }) }],
    },
    plant_store_commit_duration_seconds: {
      type: "histogram",
      data: [
        {
          labels: {},
          count: 2,
          sum: 0.00475,
          buckets: buckets(SECONDS, { "0.001": 1, "0.005": 2 }),
        },
      ],
    },
    plant_store_requests_total: {
      type: "counter",
      data: [
        { labels: { path: "/plants", method: "POST", status: "200" }, value: 3 },
        ...["5001", "5031", "5032", "5033"].map((error) => ({
          labels: { path: "/plants", method: "POST", status: error.slice(0, 3), error },
          value: 0,
        })),
        { labels: { path: "/plants", method: "POST", status: "409", error: "4091" }, value: 1 },
        { labels: { path: 'a "b" \\ c', method: "GET", status: "200" }, value: 1 },
      ],
    },
    plant_store_request_duration_seconds: {
      type: "histogram",
      data: [
        {
          labels: { path: "/plants", class: "2xx" },
          count: 3,
          sum: 6.0011,
          buckets: buckets(SECONDS, { "0.0005": 1, "0.001": 2, "+Inf": 3 }),
        },
        {
          labels: { path: "/plants", class: "5xx" },
          count: 0,
          sum: 0,
          buckets: buckets(SECONDS, {}),
        },
        {
          labels: { path: "/plants", class: "4xx" },
          count: 1,
          sum: 0.001,
          buckets: buckets(SECONDS, { "0.001": 1 }),
        },
        {
          labels: { path: 'a "b" \\ c', class: "2xx" },
          count: 1,
          sum: 0.0024,
          buckets: buckets(SECONDS, { "0.0025": 1 }),
        },
      ],
    },
    plant_store_queue_plants: {
      type: "gauge",
      data: [{ labels: {}, value: 3 }],
    },
    plant_store_queue_fill_ratio: {
      type: "gauge",
      data: [{ labels: {}, value: 0.3 }],
    },
    plant_store_event_loop_blocked_seconds_total: {
      type: "counter",
      data: [{ labels: {}, value: 0.75 }],
    },
    some_bytes: {
      type: "gauge",
      help: "Bytes of a \\\\ and a\\nline",
      data: [{ labels: {}, value: 1.5 }],
    },
    some_total: { type: "counter", data: [{ labels: {}, value: 1e21 }] },
    node_ready: {
      type: "gauge",
      data: [
        { labels: { node: "1" }, value: 1 },
        { labels: { node: "2" }, value: 0 },
      ],
    },
  });
});

const PLANTS = "1 2 4 8 16 32 64 128 256 512 1024 4096 16384 +Inf";
const SECONDS = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 +Inf";

/** The buckets with these bounds, whose count is another one from each of some bounds on. */
function buckets(bounds: string, counts: Record<string, number>): Record<string, number> {
  let count = 0;
  return Object.fromEntries(
    bounds.split(" ").map((bound) => [bound, (count = counts[bound] ?? count)]),
  );
}

test("before the first request the outcomes and histograms are zero: a rate sees the first conflict", async () => {
  const samples = (await createMetrics().render())
    .split("\n")
    .filter((line) => line.startsWith("plant_store_"));
  for (const outcome of ["added", "present", "conflict"]) {
    expect(samples).toContain(`plant_store_plants_total{outcome="${outcome}"} 0`);
  }
  for (const labels of ['status="200"', 'status="500",error="5001"', 'status="503",error="5031"']) {
    const series = `plant_store_requests_total{path="/plants",method="POST",${labels}}`;
    expect(samples).toContain(`${series} 0`);
  }
  expect(samples.filter((sample) => !sample.endsWith(" 0"))).toEqual([]);
});

test("how full the queue was is the highest of the last minute, whoever reads it", async () => {
  using clock = spyOn(performance, "now").mockReturnValue(0);
  const metrics = createMetrics();
  let fill = 0;
  metrics.registerQueue({ size: () => 1, fill: () => fill });
  const highest = async () =>
    Number(/^plant_store_queue_fill_ratio (\S+)$/m.exec(await metrics.render())?.[1]);

  // Of a full queue, a scrape after the commit sees nothing.
  clock.mockReturnValue(59_000);
  fill = 0.9;
  metrics.countCommit({ outcomes: ["added"], durationMs: 1 });
  fill = 0.01;

  const seen: number[] = [];
  for (const second of [60, 61, 119, 121, 239]) {
    clock.mockReturnValue(second * 1_000);
    seen.push(await highest());
  }
  expect(seen).toEqual([0.9, 0.9, 0.9, 0.01, 0.01]);
});

test.each([
  ["1 while a plant could be stored", () => Promise.resolve(), 1],
  ["0 while none could", () => Promise.reject(new Error("the disk is full")), 0],
])("plant_store_ready is %s", async (_, ready, value) => {
  const metrics = createMetrics();
  metrics.registerReady(ready);
  expect((await metrics.render()).split("\n")).toContain(`plant_store_ready ${value}`);
});

test("the process's metrics are those that cost microseconds, without the heap's spaces", async () => {
  const types = (await createMetrics().render()).match(/(?<=^# TYPE process_).*/gm);
  const descriptors = statSync("/proc/self/fd", { throwIfNoEntry: false })?.size
    ? ["open_fds", "max_fds"]
    : [];
  const gauges = ["start_time_seconds", "resident_memory_bytes", ...descriptors].map(
    (name) => `${name} gauge`,
  );
  expect(types?.toSorted()).toEqual([...gauges, "cpu_seconds_total counter"].toSorted());
});

test("plants are counted by the stored token's name; JWTs, and tokens beyond a hundred, count together", async () => {
  const metrics = createMetrics();
  const count = (subject: string, changes: Partial<CompletedRequest> = {}) =>
    metrics.countResponse({ ...ANSWERED, durationMs: 1, caller: { subject }, ...changes });

  for (const name of ["greenhouse", "static:1", "greenhouse"]) count(name);
  count("ann", { caller: { subject: "ann", issuer: "https://id.example.org/" } });
  count("greenhouse", { status: 409 });
  count("scraper", { path: "/metrics" });
  count("reader", { method: "GET" });
  for (let i = 1; i <= 150; i++) count(`token-${i}`);
  count("greenhouse");

  const lines = (await metrics.render()).match(/^plant_store_plants_by_token_total.*$/gm) ?? [];
  const counts = new Map(lines.map((line) => line.split(" ") as [string, string]));
  const of = (token: string) => counts.get(`plant_store_plants_by_token_total{token="${token}"}`);
  expect(["greenhouse", "static:1", "token-97"].map(of)).toEqual(["3", "1", "1"]);
  expect(["ann", "scraper", "reader"].filter(of)).toEqual([]);
  expect([of("token-98"), of("(other)"), counts.size]).toEqual([undefined, "54", 100]);
});

test("methods that no client has a reason to send are one series", async () => {
  const metrics = createMetrics();
  for (const method of ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PROPFIND", "CONNECT"])
    metrics.countResponse({ ...ANSWERED, method, status: 405, durationMs: 1 });

  const text = await metrics.render();
  const series = text.matchAll(
    /^plant_store_requests_total\{.*method="(\w+)",status="405"\} (\d+)$/gm,
  );
  expect(Array.from(series, ([, method, count]) => `${method} ${count}`)).toEqual([
    "GET 1",
    "HEAD 1",
    "OPTIONS 1",
    "POST 1",
    "other 3",
  ]);
});
