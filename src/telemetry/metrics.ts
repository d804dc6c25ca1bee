import { Counter, Gauge, Histogram, Registry } from "./prom_client.ts";
import type { Commit } from "../group_commit/batch.ts";
import type { CompletedRequest } from "../http/observer.ts";
import type { DatabaseMetric } from "../database/database.ts";
import { registerProcessMetrics } from "./process_metrics.ts";
import { BUCKETS_MS, requestMetrics } from "./request_metrics.ts";

/** What is measured, and how to read it. */
export interface Metrics {
  countResponse(completed: CompletedRequest): void;
  countCommit(commit: Commit): void;
  /** Shows how many plants are pending or in flight. */
  registerQueue(size: () => number): void;
  /** Shows the metrics of a database. */
  registerDatabase(read: () => readonly DatabaseMetric[]): void;
  /** In Prometheus' text format, as it was at most a second ago: many scrapers cost no more than one. */
  render(): Promise<string>;
}

/** What {@linkcode createMetrics} needs. */
export interface MetricsOptions {
  /** Milliseconds that never go back. @default `performance.now` */
  readonly monotonic?: () => number;
}

/** Makes a registry of its own. */
export function createMetrics({ monotonic = () => performance.now() }: MetricsOptions = {}): Metrics {
  const registry = new Registry();
  registerProcessMetrics(registry);
  return {
    countCommit: commitMetrics(registry),
    countResponse: requestMetrics(registry),
    registerQueue: (size) => registry.registerMetric(queueGauge(size)),
    registerDatabase: (read) => registerDatabase(registry, read),
    render: atMostOnceASecond(() => registry.metrics(), monotonic),
  };
}

/** The upper ends of the buckets of how many plants a commit held. */
const BUCKETS_PLANTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384];

/** Registers the metrics of commits and gives what counts one. */
function commitMetrics(registry: Registry): (commit: Commit) => void {
  const outcomes = outcomeCounters(registry);
  const batches = new Histogram({
    name: "plant_store_batch_plants",
    help: "Plants a commit",
    buckets: BUCKETS_PLANTS,
    registers: [registry],
  });
  const commits = new Histogram({
    name: "plant_store_commit_duration_seconds",
    help: "How long a commit took, to the disk and back",
    buckets: BUCKETS_MS.map((milliseconds) => milliseconds / 1_000),
    registers: [registry],
  });
  return ({ outcomes: all, durationMs }) => {
    const added = all.filter((outcome) => outcome === "added").length;
    const present = all.filter((outcome) => outcome === "present").length;
    outcomes.added.inc(added);
    outcomes.present.inc(present);
    outcomes.conflict.inc(all.length - added - present);
    batches.observe(all.length);
    commits.observe(durationMs / 1_000);
  };
}

/**
 * A counter for each outcome, looked up once: prom-client hashes the labels at each look-up. Each is shown from the
 * start on, because a rate needs the zero before the first conflict.
 */
function outcomeCounters(registry: Registry) {
  const plants = new Counter({
    name: "plant_store_plants_total",
    help: "Plants by outcome: added, present (a re-send) or conflict",
    labelNames: ["outcome"] as const,
    registers: [registry],
  });
  const counters = {
    added: plants.labels("added"),
    present: plants.labels("present"),
    conflict: plants.labels("conflict"),
  };
  for (const counter of Object.values(counters)) counter.inc(0);
  return counters;
}

const RENDER_INTERVAL_MS = 1_000;

function atMostOnceASecond(render: () => Promise<string>, monotonic: () => number): () => Promise<string> {
  let renderedAt = Number.NEGATIVE_INFINITY;
  let rendered: Promise<string> | undefined;
  return () => {
    if (rendered === undefined || monotonic() - renderedAt >= RENDER_INTERVAL_MS) {
      renderedAt = monotonic();
      rendered = render();
    }
    return rendered;
  };
}

/** Names are read here, and each value at every scrape. */
function registerDatabase(registry: Registry, read: () => readonly DatabaseMetric[]): void {
  for (const { name, help, type } of read()) {
    const get = async () => ({
      name,
      help,
      type,
      values: [{ labels: {}, value: read().find((metric) => metric.name === name)?.value ?? Number.NaN }],
    });
    // prom-client's types know its own classes only; its registry takes any object that has these two members.
    registry.registerMetric({ name, get } as unknown as Gauge);
  }
}

function queueGauge(size: () => number): Gauge {
  return new Gauge({
    name: "plant_store_queue_plants",
    help: "Plants that are pending or in flight",
    registers: [],
    collect() {
      this.set(size());
    },
  });
}
