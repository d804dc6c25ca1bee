import { readFileSync, statSync } from "node:fs";
import { Counter, Gauge, type Registry } from "./prom_client.ts";

/**
 * Registers the metrics of a process that mean something on Bun and cost microseconds, under the names of Prometheus'
 * own clients (https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics). prom-client's defaults
 * read the heap's spaces, which takes Bun 14 ms, and longer for a larger heap.
 */
export function registerProcessMetrics(registry: Registry): void {
  const startTime = Date.now() / 1_000 - process.uptime();
  gauge(registry, "process_start_time_seconds", "When the process started, since 1970 UTC", () => startTime);
  gauge(registry, "process_resident_memory_bytes", "Memory that is resident", () => process.memoryUsage.rss());
  cpuSeconds(registry);
  const maxFds = maxOpenFds();
  if (maxFds === undefined) return;
  gauge(registry, "process_open_fds", "File descriptors that are open", openFds);
  gauge(registry, "process_max_fds", "File descriptors that may be open", () => maxFds);
}

function gauge(registry: Registry, name: string, help: string, read: () => number): void {
  const metric = new Gauge({
    name,
    help,
    registers: [],
    collect() {
      this.set(read());
    },
  });
  registry.registerMetric(metric);
}

function cpuSeconds(registry: Registry): void {
  const metric = new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time of all threads, user and system",
    registers: [],
    collect() {
      const { user, system } = process.cpuUsage();
      this.reset();
      this.inc((user + system) / 1e6);
    },
  });
  registry.registerMetric(metric);
}

/** Since Linux 6.2 the size of this directory is how many there are; listing it costs a millisecond for every 70. */
const OPEN_FDS = "/proc/self/fd";

function openFds(): number {
  return statSync(OPEN_FDS).size;
}

/** The soft limit; undefined where the system does not show how many are open. */
function maxOpenFds(): number | undefined {
  if (!statSync(OPEN_FDS, { throwIfNoEntry: false })?.size) return undefined;
  const [, limit = ""] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  return limit === "" ? undefined : Number(limit);
}
