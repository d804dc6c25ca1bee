import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Commit } from "../group_commit.ts";
import type { CompletedRequest } from "../observer.ts";
import { requestMetrics, BUCKETS_MS } from "./request_metrics.ts";

/** What is measured, and how to read it. */
export interface Metrics {
  countResponse(completed: CompletedRequest): void;
  countCommit(commit: Commit): void;
  /** Shows how many plants have no response yet. */
  registerQueue(size: () => number): void;
  /** In Prometheus' text format. */
  render(): Promise<string>;
}

const PLANTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384];

/** Makes a registry of its own. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  const plants = new Counter({
    name: "plant_store_plants_total",
    help: "Plants by what became of them: added, present (a re-send) or conflict",
    labelNames: ["outcome"] as const,
    registers,
  });
  const batches = new Histogram({
    name: "plant_store_batch_plants",
    help: "Plants a commit",
    buckets: PLANTS,
    registers,
  });
  const commits = new Histogram({
    name: "plant_store_commit_duration_seconds",
    help: "How long a commit took, to the disk and back",
    buckets: BUCKETS_MS.map((milliseconds) => milliseconds / 1_000),
    registers,
  });
  // A child is looked up once: prom-client hashes the labels at each look.
  const outcomes = {
    added: plants.labels("added"),
    present: plants.labels("present"),
    conflict: plants.labels("conflict"),
  };
  return {
    countResponse: requestMetrics(registry),
    countCommit({ outcomes: all, durationMs }) {
      const added = all.filter((outcome) => outcome === "added").length;
      const present = all.filter((outcome) => outcome === "present").length;
      outcomes.added.inc(added);
      outcomes.present.inc(present);
      outcomes.conflict.inc(all.length - added - present);
      batches.observe(all.length);
      commits.observe(durationMs / 1_000);
    },
    registerQueue: (size) => registry.registerMetric(queueGauge(size)),
    render: () => registry.metrics(),
  };
}

function queueGauge(size: () => number): Gauge {
  return new Gauge({
    name: "plant_store_queue_plants",
    help: "Plants without a response",
    registers: [],
    collect() {
      this.set(size());
    },
  });
}
