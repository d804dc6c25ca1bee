import type { DatabaseMetric } from "../database.ts";
import type { LaneCounts } from "./lane_counts.ts";
import type { Lanes } from "./lanes.ts";

/** The metrics of the lanes. */
export function databaseMetrics(counts: LaneCounts, all: readonly Lanes[]): readonly DatabaseMetric[] {
  const sum = (numberOf: (lanes: Lanes) => number) => all.reduce((total, lanes) => total + numberOf(lanes), 0);
  return [
    gauge(
      "connections",
      "Connections to PostgreSQL that are open",
      sum((lanes) => lanes.connected()),
    ),
    gauge(
      "lanes_busy",
      "Lanes with a statement in flight or given up and not ended, or connecting",
      sum((lanes) => lanes.busy()),
    ),
    counter("reconnections_total", "Connections opened in the place of one that was lost", counts.reconnections),
    counter("retries_total", "Further attempts at a piece of work after one that failed", counts.retries),
    counter("statements_total", "Batches, probes and other pieces of work done", counts.done),
    counter("statement_seconds_total", "How long they took together", counts.durationMs / 1_000),
  ];
}

function gauge(name: string, help: string, value: number): DatabaseMetric {
  return { name: `plant_store_postgres_${name}`, help, type: "gauge", value };
}

function counter(name: string, help: string, value: number): DatabaseMetric {
  return { name: `plant_store_postgres_${name}`, help, type: "counter", value };
}
