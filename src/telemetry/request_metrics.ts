import { Counter, type Histogram, type Registry } from "./prom_client.ts";
import type { CompletedRequest } from "../http/observer.ts";

/** The upper ends of the buckets of durations, of requests and of commits, in milliseconds. */
export const BUCKETS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/** The responses with the same labels: how many took how long. */
interface Series {
  readonly path: string;
  readonly method: string;
  readonly status: number;
  /** One for each of {@linkcode BUCKETS_MS}, and one for longer requests. */
  readonly buckets: number[];
  /** The sum of all of them, in milliseconds. */
  duration: number;
}

/**
 * Registers the metrics of requests and returns the function that counts a response. prom-client's own counting checks
 * and hashes the labels of every observation, which is a twentieth of what a stored plant costs; here it is two
 * additions, and the samples are made at a scrape.
 */
export function requestMetrics(registry: Registry): (completed: CompletedRequest) => void {
  const series: Series[] = [];
  let last: Series | undefined;
  registry.registerMetric(requests(series));
  registry.registerMetric(durations(series));
  return (completed) => {
    if (last === undefined || !matches(last, completed)) last = seriesOf(series, completed);
    const { buckets } = last;
    const bucket = bucketOf(completed.durationMs);
    buckets[bucket] = (buckets[bucket] ?? 0) + 1;
    last.duration += completed.durationMs;
  };
}

function bucketOf(durationMs: number): number {
  let bucket = 0;
  while (durationMs > (BUCKETS_MS[bucket] ?? Number.POSITIVE_INFINITY)) bucket++;
  return bucket;
}

function matches(series: Series, { path, method, status }: CompletedRequest): boolean {
  return series.path === path && series.method === method && series.status === status;
}

/** Paths and statuses are ours, and methods those that the HTTP parser knows: there are never many series. */
function seriesOf(series: Series[], completed: CompletedRequest): Series {
  const known = series.find((one) => matches(one, completed));
  if (known !== undefined) return known;
  const { path, method, status } = completed;
  const added = { path, method, status, buckets: [0, ...BUCKETS_MS.map(() => 0)], duration: 0 };
  series.push(added);
  return added;
}

function requests(series: readonly Series[]): Counter {
  return new Counter({
    name: "plant_store_requests_total",
    help: "Requests answered",
    labelNames: ["path", "method", "status"],
    registers: [],
    collect() {
      this.reset();
      for (const { path, method, status, buckets } of series) this.inc({ path, method, status }, sum(buckets));
    },
  });
}

/** A histogram that prom-client renders but does not count: its registry takes such an object, its types do not. */
function durations(series: readonly Series[]): Histogram {
  const name = "plant_store_request_duration_seconds";
  const get = async () => ({
    name,
    help: "From a request's headers to its response",
    type: "histogram",
    values: [...Map.groupBy(series, ({ path }) => path)].flatMap(([path, ofPath]) => samples(name, path, ofPath)),
  });
  return { name, get } as unknown as Histogram;
}

/** https://prometheus.io/docs/instrumenting/exposition_formats: each bucket holds those below it, too. */
function samples(name: string, path: string, series: readonly Series[]) {
  let count = 0;
  const buckets = [...BUCKETS_MS, Number.POSITIVE_INFINITY].map((bound, index) => {
    count += sum(series.map(({ buckets }) => buckets[index] ?? 0));
    const le = bound === Number.POSITIVE_INFINITY ? "+Inf" : bound / 1_000;
    return { metricName: `${name}_bucket`, labels: { le, path }, value: count };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels: { path }, value: sum(series.map(({ duration }) => duration)) / 1_000 },
    { metricName: `${name}_count`, labels: { path }, value: count },
  ];
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
