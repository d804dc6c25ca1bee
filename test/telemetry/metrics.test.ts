import { expect, test } from "bun:test";
import { createMetrics } from "../../src/telemetry/metrics.ts";

/** The samples of one metric, without their order. */
async function samplesOf(metrics: { render(): Promise<string> }, name: string): Promise<string[]> {
  return (await metrics.render()).split("\n").filter((line) => line.startsWith(name));
}

const REQUEST = { requestId: "1", clientAddress: () => undefined };

test("durations are counted in seconds, in buckets that reach up to their bounds", async () => {
  const metrics = createMetrics();
  const answered = { path: "/plants", method: "POST", status: 200, ...REQUEST };
  for (const durationMs of [0.5, 0.6, 6_000]) metrics.countResponse({ ...answered, durationMs });
  const name = "plant_store_request_duration_seconds";
  const samples = await samplesOf(metrics, name);
  for (const sample of [
    `${name}_bucket{le="0.0005",path="/plants"} 1`,
    `${name}_bucket{le="0.001",path="/plants"} 2`,
    `${name}_bucket{le="5",path="/plants"} 2`,
    `${name}_bucket{le="+Inf",path="/plants"} 3`,
    `${name}_sum{path="/plants"} 6.0011`,
    `${name}_count{path="/plants"} 3`,
  ]) {
    expect(samples).toContain(sample);
  }
});

test("responses are counted by path, method and status, in any order", async () => {
  const metrics = createMetrics();
  for (const status of [200, 409, 200, 200, 409]) {
    metrics.countResponse({ path: "/plants", method: "POST", status, durationMs: 1, ...REQUEST });
  }
  metrics.countResponse({ path: "other", method: "GET", status: 404, durationMs: 1, ...REQUEST });
  const expected = [
    'plant_store_requests_total{path="/plants",method="POST",status="200"} 3',
    'plant_store_requests_total{path="/plants",method="POST",status="409"} 2',
    'plant_store_requests_total{path="other",method="GET",status="404"} 1',
  ];
  expect(await samplesOf(metrics, "plant_store_requests_total")).toEqual(expected);
  // Reading changes nothing.
  expect(await samplesOf(metrics, "plant_store_requests_total")).toEqual(expected);
});

test("the metrics are rendered at most once a second, however many scrape", async () => {
  let now = 0;
  let reads = 0;
  const metrics = createMetrics({ monotonic: () => now });
  metrics.registerQueue(() => ++reads);
  const first = await Promise.all([metrics.render(), metrics.render()]);
  now = 999;
  expect(new Set([...first, await metrics.render()]).size).toBe(1);
  expect(reads).toBe(1);
  now = 1_000;
  expect(await metrics.render()).toContain("\nplant_store_queue_plants 2\n");
});

test("outcomes are there before the first plant: a rate sees the first conflict", async () => {
  expect((await samplesOf(createMetrics(), "plant_store_plants_total")).toSorted()).toEqual([
    'plant_store_plants_total{outcome="added"} 0',
    'plant_store_plants_total{outcome="conflict"} 0',
    'plant_store_plants_total{outcome="present"} 0',
  ]);
});

test("what a database has to watch is shown with its type, as it is at the scrape", async () => {
  const metrics = createMetrics();
  let value = 1;
  metrics.registerDatabase(() => [{ name: "some_bytes", help: "Some bytes", type: "gauge", value }]);
  value = 2;
  expect(await metrics.render()).toContain("# HELP some_bytes Some bytes\n# TYPE some_bytes gauge\nsome_bytes 2\n");
});

test("the process's metrics are those that cost microseconds: nothing of the heap's spaces", async () => {
  const names = Array.from((await createMetrics().render()).matchAll(/^# TYPE (\w+)/gm), ([, name]) => name);
  expect(names.filter((name) => name?.startsWith("nodejs_"))).toEqual([]);
  expect(names).toContain("process_cpu_seconds_total");
  expect(names).toContain("process_resident_memory_bytes");
  expect(names).toContain("process_start_time_seconds");
});
