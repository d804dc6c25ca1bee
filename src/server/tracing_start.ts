import { withDeadline } from "../async/timers.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import type { Config } from "../settings/settings.ts";
import type { Tracing, TracingOptions } from "../telemetry/tracing.ts";
import type { Extension } from "./extension.ts";

/** Sends traces to a collector, if one is set. */
export const TRACING: Extension = {
  async check(config) {
    const tracing = await load(config, { onFailure() {}, onIgnored() {} });
    await tracing?.close();
  },

  async start(config, { log, metrics, atStop }) {
    const tracing = await load(config, {
      onFailure: (reason) => log.warning("Trace export failed", { reason }),
      onIgnored: (variables) => log.warning("OpenTelemetry variables ignored", { variables }),
    });
    if (tracing === undefined) return {};

    metrics.register(tracing.metrics);
    const reason = `the collector did not accept the last spans in time (${tracing.collector})`;
    const notSent = () => log.warning("Trace export failed", { reason });
    atStop(0.1, (timeoutMs) => withDeadline(tracing.close(), timeoutMs, notSent));

    return {
      gather: tracing.tracePlants,
      fetch: tracing.trace,
      requestProperties: (inner) => () => ({ ...inner(), traceId: tracing.traceId() }),
      observer: (inner) => ({
        ...inner,
        onResponse(completed) {
          inner.onResponse(completed);
          tracing.onResponse(completed);
        },
      }),
    };
  },
};

/** OpenTelemetry is large: only a server with a collector loads it. */
async function load(
  { tracing, tracesExporter }: Config,
  events: Pick<TracingOptions, "onFailure" | "onIgnored">,
): Promise<Tracing | undefined> {
  if (tracing === undefined || tracesExporter === "none") return undefined;

  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({ ...tracing, ...events, serviceVersion: version() });
}
