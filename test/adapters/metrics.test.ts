import { expect, test } from "bun:test";
import { createMetrics } from "../../src/adapters/metrics.ts";

/** The samples of one metric, without their order. */
async function samplesOf(metrics: { render(): Promise<string> }, name: string): Promise<string[]> {
  return (await metrics.render()).split("\n").filter((line) => line.startsWith(name));
}

test("durations are counted in seconds, in buckets that reach up to their bounds", async () => {
  const metrics = createMetrics();
  const answered = { path: "/plants", method: "POST", status: 200, requestId: "1" };
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

test("answers are counted by what they have in common, however they take turns", async () => {
  const metrics = createMetrics();
  for (const status of [200, 409, 200, 200, 409]) {
    metrics.countResponse({ path: "/plants", method: "POST", status, durationMs: 1, requestId: "1" });
  }
  metrics.countResponse({ path: "other", method: "GET", status: 404, durationMs: 1, requestId: "1" });
  const expected = [
    'plant_store_requests_total{path="/plants",method="POST",status="200"} 3',
    'plant_store_requests_total{path="/plants",method="POST",status="409"} 2',
    'plant_store_requests_total{path="other",method="GET",status="404"} 1',
  ];
  expect(await samplesOf(metrics, "plant_store_requests_total")).toEqual(expected);
  // Reading changes nothing.
  expect(await samplesOf(metrics, "plant_store_requests_total")).toEqual(expected);
});
