import { readFileSync, statSync } from "node:fs";

import type { DatabaseMetric } from "../database/adapter.ts";
import { type ErrorCode, ERRORS, statusOf } from "../errors.ts";
import type { Commit, GroupCommit } from "../group_commit/group_commit.ts";
import type { CompletedRequest } from "../http/observer.ts";

/** The upper bounds of the buckets of durations, in seconds. */
const BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
/** The upper bounds of the buckets of plants per commit. */
const BUCKETS_PLANTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384];

/** The methods with series of their own. Clients cannot create series with made-up methods. */
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "POST"]);

type Queue = Pick<GroupCommit, "size" | "fill">;

/** A metric of another part. The port of a database defines the type. */
export type Metric = DatabaseMetric;

/** The metrics of the service. */
export type Metrics = ReturnType<typeof createMetrics>;

/**
 * Creates metrics that start at zero. A client library would check and hash the labels of each
 * observation, which costs more than looking up a token. Here, only a scrape formats labels.
 */
export function createMetrics() {
  /** The durations by path and class of status: a refusal is much faster than a commit. */
  const durations = new Map<string, { readonly labels: Labels; readonly observed: Histogram }>();

  /**
   * A short list, because clients cannot add paths, methods, statuses or errors. Searching it costs
   * less than building a key.
   */
  const requests: RequestSeries[] = [];
  const requestsOf = (path: string, method: string, status: number, error?: number) => {
    const isTheirs = ({ labels }: RequestSeries) =>
      labels["path"] === path &&
      labels["method"] === method &&
      labels["status"] === status &&
      labels["error"] === error;
    const known = requests.find(isTheirs);
    if (known !== undefined) return known;

    const statusClass = `${Math.floor(status / 100)}xx`;
    const { observed } = durations.getOrInsertComputed(`${path} ${statusClass}`, () => ({
      labels: { path, class: statusClass },
      observed: histogram(BUCKETS_S),
    }));
    const labels = { path, method, status, ...(error !== undefined && { error }) };
    const added = { labels, value: 0, durations: observed };
    requests.push(added);
    return added;
  };
  // Present from the start, like the outcomes below: `increase()` needs a zero before the first
  // burst.
  requestsOf("/plants", "POST", 200);
  for (const code of SERVER_ERRORS)
    requestsOf("/plants", "POST", statusOf(code), ERRORS[code].error);

  // All outcomes are present from the start: `rate()` needs a zero before the first conflict.
  const plants = { added: 0, present: 0, conflict: 0 };
  const byToken = new Map<string, number>();
  const batches = histogram(BUCKETS_PLANTS);
  const commits = histogram(BUCKETS_S);
  let queue: Queue = { size: () => 0, fill: () => 0 };
  const highestFill = recentMaximum();
  let blockedMs = 0;

  /** The readers that other parts registered. */
  const registered: (() => string[] | Promise<string[]>)[] = [];

  return {
    countResponse({ path, method, status, error, durationMs, caller }: CompletedRequest): void {
      const series = requestsOf(path, METHODS.has(method) ? method : "other", status, error);
      series.value++;
      series.durations.observe(durationMs / 1_000);

      const isStored = path === "/plants" && method === "POST" && status === 200;
      if (caller !== undefined && isStored) {
        const token = tokenLabel(caller, byToken);
        byToken.set(token, (byToken.get(token) ?? 0) + 1);
      }
    },

    countCommit({ outcomes, durationMs }: Commit): void {
      for (const outcome of outcomes) plants[outcome]++;
      batches.observe(outcomes.length);
      commits.observe(durationMs / 1_000);
      // The queue still contains the batch, and the plants that arrived meanwhile.
      highestFill.observe(queue.fill());
    },

    /** Counts for how long the event loop was blocked, in milliseconds. */
    countBlocked(delayMs: number): void {
      blockedMs += delayMs;
    },

    /**
     * Adds how many plants are pending or in flight, and how full they made the queue. A scrape
     * sees only one moment, so it gets the highest value of the last minute.
     */
    registerQueue(plants: Queue): void {
      queue = plants;
      registered.push(() => {
        highestFill.observe(plants.fill());
        return [
          gauge("plant_store_queue_plants", "Plants that are pending or in flight", plants.size()),
          gauge(
            "plant_store_queue_fill_ratio",
            "How full the queue was in the last minute, by plants or by their texts: 1 is full",
            highestFill.value(),
          ),
        ];
      });
    },

    /** Adds whether a plant could be stored: `ready` rejects if not. */
    registerReady(ready: () => Promise<void>): void {
      registered.push(async () => {
        const value = await ready().then(
          () => 1,
          () => 0,
        );
        return [gauge("plant_store_ready", "Whether a plant could be stored: 1 or 0", value)];
      });
    },

    /** Adds the metrics of another part. */
    register(read: () => readonly Metric[]): void {
      registered.push(() =>
        [...Map.groupBy(read(), ({ name }) => name)].map(([name, all]) => {
          const [{ help, type }] = all as [Metric];
          return metric(name, help, type, all);
        }),
      );
    },

    /** Renders all metrics in Prometheus' text format. */
    async render(): Promise<string> {
      const byOutcome = Object.entries(plants).map(([outcome, value]) => ({
        labels: { outcome },
        value,
      }));

      const ofPlants = [
        metric(
          "plant_store_plants_total",
          "Plants by outcome: added, present (a retry) or conflict",
          "counter",
          byOutcome,
        ),

        metric(
          "plant_store_plants_by_token_total",
          "Plants that returned 200, retries too, by the name of the stored token",
          "counter",
          Array.from(byToken, ([token, value]) => ({ labels: { token }, value })),
        ),

        metric("plant_store_batch_plants", "Plants a commit", "histogram", batches.samples()),
        metric(
          "plant_store_commit_duration_seconds",
          "How long a commit took, to the disk and back",
          "histogram",
          commits.samples(),
        ),

        metric(
          "plant_store_event_loop_blocked_seconds_total",
          "How long the event loop was blocked, in delays of half a second and more",
          "counter",
          [{ value: blockedMs / 1_000 }],
        ),
      ];

      const byPath = [...durations.values()].flatMap(({ labels, observed }) =>
        observed.samples(labels),
      );

      const ofRequests = [
        metric("plant_store_requests_total", "Requests answered", "counter", requests),
        metric(
          "plant_store_request_duration_seconds",
          "From a request's headers to its response",
          "histogram",
          byPath,
        ),
      ];

      const others = (await Promise.all(registered.map((read) => read()))).flat();
      return [...processMetrics(), ...ofPlants, ...ofRequests, ...others].join("\n");
    },
  };
}

/** The errors with a status of 500 or above. */
const SERVER_ERRORS = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => statusOf(code) >= 500);

/**
 * Tracks the highest value of the last one to two minutes: Prometheus scrapes once a minute by
 * default. Reading does not reset it, because two Prometheus servers may scrape one server.
 */
function recentMaximum() {
  const halfMs = 60_000;
  let [since, current, before] = [performance.now(), 0, 0];

  function proceed(): void {
    const halves = Math.floor((performance.now() - since) / halfMs);
    if (halves === 0) return;
    since += halves * halfMs;
    [before, current] = [halves === 1 ? current : 0, 0];
  }

  return {
    observe(value: number): void {
      proceed();
      current = Math.max(current, value);
    },
    value(): number {
      proceed();
      return Math.max(current, before);
    },
  };
}

/** How many tokens have a label of their own: time series are never removed. */
const MAX_TOKENS = 100;

/**
 * Returns the label of a caller's token. Subjects of other issuers may be personal data, and their
 * number has no limit: all count as `(other)`, which cannot be a token's name.
 */
function tokenLabel(
  { subject, issuer }: NonNullable<CompletedRequest["caller"]>,
  known: ReadonlyMap<string, number>,
): string {
  const isNamed = issuer === undefined && (known.has(subject) || known.size < MAX_TOKENS);
  return isNamed ? subject : "(other)";
}

/** Counts the requests with the same labels. */
interface RequestSeries {
  readonly labels: Labels;
  value: number;
  /** The durations of all requests with the same path and class of status. */
  readonly durations: Histogram;
}

/** One line of a metric. */
interface Sample {
  /** The suffix that a histogram appends to the metric's name. */
  readonly suffix?: string;
  readonly labels?: Labels;
  readonly value: number;
}

type Labels = Readonly<Record<string, string | number>>;

/** https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
function metric(name: string, help: string, type: string, samples: readonly Sample[]): string {
  const lines = samples.map(
    ({ suffix = "", labels = {}, value }) => `${name}${suffix}${labelText(labels)} ${value}\n`,
  );
  return `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${escaped(value).replaceAll('"', '\\"')}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escaped(value: string | number): string {
  return String(value).replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

type Histogram = ReturnType<typeof histogram>;

/** Counts values by size, as Prometheus' histograms do. */
function histogram(bounds: readonly number[]) {
  /**
   * The number of values in each bucket, without those of smaller buckets. The last bucket has no
   * bound.
   */
  const counts: number[] = Array(bounds.length + 1).fill(0);
  let sum = 0;

  return {
    observe(value: number): void {
      let bucket = 0;
      while (value > (bounds[bucket] ?? Infinity)) bucket++;
      counts[bucket] = (counts[bucket] ?? 0) + 1;
      sum += value;
    },

    /** Returns the samples. Each bucket includes the smaller ones. */
    samples(labels: Labels = {}): Sample[] {
      let count = 0;
      const buckets = counts.map((inBucket, index) => {
        count += inBucket;
        return {
          suffix: "_bucket",
          labels: { le: bounds[index] ?? "+Inf", ...labels },
          value: count,
        };
      });

      return [
        ...buckets,
        { suffix: "_sum", labels, value: sum },
        { suffix: "_count", labels, value: count },
      ];
    },
  };
}

/**
 * Returns the metrics of the process, with the names of Prometheus' own clients
 * (https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics). All are quick to
 * read.
 */
function processMetrics(): string[] {
  const { user, system } = process.cpuUsage();
  const metrics = [
    gauge("process_start_time_seconds", "When the process started, since 1970 UTC", START_TIME_S),
    gauge("process_resident_memory_bytes", "Memory that is resident", process.memoryUsage.rss()),
    metric("process_cpu_seconds_total", "CPU time of all threads, user and system", "counter", [
      { value: (user + system) / 1e6 },
    ]),
  ];

  // Since Linux 6.2, the size is the number of entries: no need to list them.
  const open = statSync("/proc/self/fd", { throwIfNoEntry: false })?.size;
  if (!open) return metrics;
  metrics.push(gauge("process_open_fds", "File descriptors that are open", open));

  // The soft limit, unless it is `unlimited`.
  const [, max] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  if (max !== undefined)
    metrics.push(gauge("process_max_fds", "File descriptors that may be open", Number(max)));

  return metrics;
}

const START_TIME_S = Date.now() / 1_000 - process.uptime();

function gauge(name: string, help: string, value: number): string {
  return metric(name, help, "gauge", [{ value }]);
}
