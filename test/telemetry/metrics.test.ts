import { expect, test } from "bun:test";
import { statSync } from "node:fs";
import { getMetricsFromIterator } from "prom2javascript";
import { createMetrics, type Metrics } from "../../src/telemetry/metrics.ts";

const ANSWERED = { path: "/plants", method: "POST", status: 200, requestId: "1", clientAddress: () => undefined };

/** Some of everything. */
function usedMetrics(): Metrics {
  const metrics = createMetrics();
  for (const durationMs of [0.5, 0.6, 6_000]) metrics.countResponse({ ...ANSWERED, durationMs });
  metrics.countResponse({ ...ANSWERED, status: 409, durationMs: 1 });
  metrics.countResponse({ ...ANSWERED, path: "other", method: "GET", status: 404, durationMs: 2.4 });
  metrics.countCommit({ outcomes: ["added", "added", "present", "conflict"], durationMs: 4 });
  metrics.countCommit({ outcomes: ["added"], durationMs: 0.75 });
  metrics.registerQueue(() => 3);
  return metrics;
}

test("the metrics of the service are those that dashboards and alerts know, byte for byte", async () => {
  const text = await usedMetrics().render();
  const expected = [
    "# HELP plant_store_plants_total Plants by outcome: added, present (a retry) or conflict",
    "# TYPE plant_store_plants_total counter",
    'plant_store_plants_total{outcome="added"} 3',
    'plant_store_plants_total{outcome="present"} 1',
    'plant_store_plants_total{outcome="conflict"} 1',
    "",
    "# HELP plant_store_batch_plants Plants a commit",
    "# TYPE plant_store_batch_plants histogram",
    ...histogram("plant_store_batch_plants", "", PLANTS, { 1: 1, 4: 2 }, 5),
    "",
    "# HELP plant_store_commit_duration_seconds How long a commit took, to the disk and back",
    "# TYPE plant_store_commit_duration_seconds histogram",
    ...histogram("plant_store_commit_duration_seconds", "", SECONDS, { "0.001": 1, "0.005": 2 }, 0.00475),
    "",
    "# HELP plant_store_requests_total Requests answered",
    "# TYPE plant_store_requests_total counter",
    'plant_store_requests_total{path="/plants",method="POST",status="200"} 3',
    'plant_store_requests_total{path="/plants",method="POST",status="409"} 1',
    'plant_store_requests_total{path="other",method="GET",status="404"} 1',
    "",
    "# HELP plant_store_request_duration_seconds From a request's headers to its response",
    "# TYPE plant_store_request_duration_seconds histogram",
    ...histogram(
      "plant_store_request_duration_seconds",
      'path="/plants"',
      SECONDS,
      { "0.0005": 1, "0.001": 3, "+Inf": 4 },
      6.0021,
    ),
    ...histogram("plant_store_request_duration_seconds", 'path="other"', SECONDS, { "0.0025": 1 }, 0.0024),
    "",
    "# HELP plant_store_queue_plants Plants that are pending or in flight",
    "# TYPE plant_store_queue_plants gauge",
    "plant_store_queue_plants 3",
    "",
  ];
  expect(text.slice(text.indexOf("# HELP plant_store_")).split("\n")).toEqual(expected);
});

const PLANTS = "1 2 4 8 16 32 64 128 256 512 1024 4096 16384 +Inf";
const SECONDS = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 +Inf";

/** The lines of a histogram whose count is another one from each of these bounds on. */
function histogram(name: string, label: string, bounds: string, counts: Record<string, number>, sum: number): string[] {
  let count = 0;
  const buckets = bounds.split(" ").map((bound) => {
    count = counts[bound] ?? count;
    return `${name}_bucket{${[`le="${bound}"`, label].filter(Boolean).join()}} ${count}`;
  });
  const labels = label && `{${label}}`;
  return [...buckets, `${name}_sum${labels} ${sum}`, `${name}_count${labels} ${count}`];
}

test("another parser of Prometheus' text format reads the same: types, labels, escapes and histograms", async () => {
  const metrics = usedMetrics();
  metrics.registerDatabase(() => [
    { name: "some_bytes", help: "Bytes of a \\ and a\nline", type: "gauge", value: 1.5 },
    { name: "some_total", help: "Large", type: "counter", value: 1e21 },
  ]);
  metrics.countResponse({ ...ANSWERED, path: 'a "b" \\ c', durationMs: 1 });
  const parsed = await getMetricsFromIterator((await metrics.render()).split("\n").values());
  expect(parsed).toMatchObject({
    process_cpu_seconds_total: { type: "counter", data: [{ labels: {}, value: expect.any(Number) }] },
    some_bytes: { type: "gauge", help: "Bytes of a \\\\ and a\\nline", data: [{ value: 1.5 }] },
    some_total: { type: "counter", data: [{ value: 1e21 }] },
    plant_store_requests_total: {
      data: [{}, {}, {}, { labels: { path: 'a "b" \\ c', method: "POST", status: "200" }, value: 1 }],
    },
    plant_store_request_duration_seconds: {
      type: "histogram",
      data: [
        { labels: { path: "/plants" }, count: 4, sum: 6.0021, buckets: { "0.0005": 1, "0.001": 3, "5": 3, "+Inf": 4 } },
        { labels: { path: "other" }, count: 1, sum: 0.0024 },
        { labels: { path: 'a "b" \\ c' }, count: 1 },
      ],
    },
  });
  expect(Object.values(parsed).map(({ type }) => type)).not.toContain("unknown");
});

test("before the first request the outcomes and histograms are zero: a rate sees the first conflict", async () => {
  const samples = (await createMetrics().render()).split("\n").filter((line) => line.startsWith("plant_store_"));
  for (const outcome of ["added", "present", "conflict"]) {
    expect(samples).toContain(`plant_store_plants_total{outcome="${outcome}"} 0`);
  }
  expect(samples.filter((sample) => !sample.endsWith(" 0"))).toEqual([]);
});

test("the process's metrics are those that cost microseconds: nothing of the heap's spaces", async () => {
  const names = Array.from((await createMetrics().render()).matchAll(/^# TYPE process_(\w+)/gm), ([, name]) => name);
  const descriptors = statSync("/proc/self/fd", { throwIfNoEntry: false })?.size ? ["open_fds", "max_fds"] : [];
  expect(names).toEqual(["start_time_seconds", "resident_memory_bytes", "cpu_seconds_total", ...descriptors]);
});
