import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Commit } from "../group_commit.ts";
import type { Answered } from "../observer.ts";

/** What is measured, and how to read it. */
export interface Metrics {
  countAnswer(answered: Answered): void;
  countCommit(commit: Commit): void;
  /** In Prometheus' text format. */
  render(): Promise<string>;
}

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const PLANTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384];

/**
 * Makes a registry of its own.
 *
 * @param queueLength How many plants have no answer yet.
 */
export function createMetrics(queueLength: () => number): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  const requests = new Counter({
    name: "plant_store_requests_total",
    help: "Requests answered",
    labelNames: ["path", "method", "status"] as const,
    registers,
  });
  const durations = new Histogram({
    name: "plant_store_request_duration_seconds",
    help: "From a request's headers to its answer",
    labelNames: ["path"] as const,
    buckets: SECONDS,
    registers,
  });
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
    buckets: SECONDS,
    registers,
  });
  const queue = new Gauge({
    name: "plant_store_queue_plants",
    help: "Plants without an answer",
    registers: [],
    collect() {
      this.set(queueLength());
    },
  });
  registry.registerMetric(queue);
  // A child is looked up once: prom-client hashes the labels at each look.
  const outcomes = {
    added: plants.labels("added"),
    present: plants.labels("present"),
    conflict: plants.labels("conflict"),
  };
  const children = new Map<string, Children>();

  function childrenOf({ path, method, status }: Answered): Children {
    const key = `${status} ${method} ${path}`;
    let found = children.get(key);
    if (found === undefined) {
      found = { unread: 0, count: requests.labels(path, method, String(status)), duration: durations.labels(path) };
      children.set(key, found);
    }
    return found;
  }

  return {
    countAnswer(answered) {
      const found = childrenOf(answered);
      found.unread++;
      found.duration.observe(answered.durationMs / 1_000);
    },
    countCommit({ outcomes: all, durationMs }) {
      const added = all.filter((outcome) => outcome === "added").length;
      const present = all.filter((outcome) => outcome === "present").length;
      outcomes.added.inc(added);
      outcomes.present.inc(present);
      outcomes.conflict.inc(all.length - added - present);
      batches.observe(all.length);
      commits.observe(durationMs / 1_000);
    },
    render() {
      for (const found of children.values()) {
        found.count.inc(found.unread);
        found.unread = 0;
      }
      return registry.metrics();
    },
  };
}

/** What one kind of answers is counted in. prom-client's counter hashes its labels at each count: they are summed up. */
interface Children {
  unread: number;
  readonly count: Counter.Internal;
  readonly duration: Histogram.Internal<"path">;
}
