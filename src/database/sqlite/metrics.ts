import type { DatabaseMetric } from "../database.ts";
import { walBytes } from "./database_file.ts";

/** How large the write-ahead log beside a database is. */
export function walSize(path: string): DatabaseMetric {
  return {
    name: "plant_store_wal_bytes",
    help: "Size of SQLite's write-ahead log",
    type: "gauge",
    value: walBytes(path),
  };
}

/** How many checkpoints failed. */
export function checkpointFailures(count: number): DatabaseMetric {
  return {
    name: "plant_store_checkpoint_failures_total",
    help: "Checkpoints that failed: the WAL grows until one succeeds",
    type: "counter",
    value: count,
  };
}
