import type { Logger } from "@logtape/logtape";

import { withDeadline } from "../async/timers.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import type { Config } from "../settings/settings.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Tracing, TracingOptions } from "../telemetry/tracing.ts";

/** What tracing needs of a service. */
interface TracedService {
  readonly log: Logger;
  readonly metrics: Pick<Metrics, "register">;
  /** Adds a step to the stop of the service, and its share of the time. */
  readonly atStop: (share: number, step: (timeoutMs: number) => Promise<unknown>) => void;
}

/**
 * Starts to send traces; without a collector it resolves to `undefined`.
 *
 * @throws {ConfigError} If a variable of OpenTelemetry cannot be obeyed.
 */
export async function traceService(
  config: Config,
  { log, metrics, atStop }: TracedService,
): Promise<Tracing | undefined> {
  const tracing = await load(config, {
    onFailure: (reason) => log.warning("Trace export failed", { reason }),
    onIgnored: (variables) => log.warning("OpenTelemetry variables ignored", { variables }),
  });
  if (tracing === undefined) return undefined;

  metrics.register(tracing.metrics);
  const reason = `the collector did not accept the last spans in time (${tracing.collector})`;
  const notSent = () => log.warning("Trace export failed", { reason });
  atStop(0.1, (timeoutMs) => withDeadline(tracing.close(), timeoutMs, notSent));
  return tracing;
}

/**
 * Checks the variables of OpenTelemetry, and sends nothing.
 *
 * @throws {ConfigError} If one cannot be obeyed.
 */
export async function checkTracing(config: Config): Promise<void> {
  const tracing = await load(config, { onFailure() {}, onIgnored() {} });
  await tracing?.close();
}

/** OpenTelemetry is large: only a server with a collector loads it. */
async function load(
  { tracing, tracesExporter }: Config,
  events: Pick<TracingOptions, "onFailure" | "onIgnored">,
): Promise<Tracing | undefined> {
  if (tracing === undefined || tracesExporter === "none") return undefined;

  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({ ...tracing, ...events, serviceVersion: version() });
}
