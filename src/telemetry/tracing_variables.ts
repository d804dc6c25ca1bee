import { MAX_TIMER_MS } from "../async/timers.ts";
import { ConfigError } from "../errors.ts";

/** Reads an environment variable: `undefined` if it is unset or blank. */
type ReadVariable = (name: string) => string | undefined;

/** OpenTelemetry's variables for traces, parsed. */
export type OtelVariables = ReturnType<typeof readOtelVariables>;

/**
 * Reads OpenTelemetry's variables that neither our settings nor the exporter reads. The exporter
 * reads headers, compression, certificates and the like, and warns of invalid values. It has only
 * one protocol, and ignores the variable for it.
 * https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
 *
 * @throws {ConfigError} If a value cannot be used.
 */
export function readOtelVariables(read: ReadVariable) {
  requireProtocol(read);

  return {
    batches: {
      maxQueueSize: integerOf(read, "OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
      maxExportBatchSize: integerOf(read, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
      scheduledDelayMillis: integerOf(read, "OTEL_BSP_SCHEDULE_DELAY", 5_000),
      exportTimeoutMillis: integerOf(read, "OTEL_BSP_EXPORT_TIMEOUT", 30_000),
    },
    sampling: samplingOf(read),
    continuesTraces: continuesTraces(read),
    ignored: IGNORED.filter((name) => !/^(?:none)?$/.test(read(name) ?? "")),
  };
}

/** Variables of the specification that have no effect here. */
const IGNORED = [
  "OTEL_METRICS_EXPORTER",
  "OTEL_LOGS_EXPORTER",
  "OTEL_LOG_LEVEL",
  "OTEL_CONFIG_FILE",
  "OTEL_EXPERIMENTAL_CONFIG_FILE",
  "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
  "OTEL_ATTRIBUTE_COUNT_LIMIT",
  "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
  "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
  "OTEL_SPAN_EVENT_COUNT_LIMIT",
  "OTEL_SPAN_LINK_COUNT_LIMIT",
  "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
  "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
];

function refusal(name: string, text: string, expected: string): ConfigError {
  return new ConfigError(`Cannot use ${name}=${text}: expected ${expected}`);
}

/** Requires the supported protocol. The variable for traces overrides the one for all signals. */
function requireProtocol(read: ReadVariable): void {
  const protocols = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
  const name = protocols.find((variable) => read(variable) !== undefined) ?? "";
  const text = read(name) ?? PROTOCOL;
  if (text !== PROTOCOL) throw refusal(name, text, PROTOCOL);
}

const PROTOCOL = "http/protobuf";

function integerOf(read: ReadVariable, name: string, preset: number): number {
  const text = read(name) ?? String(preset);
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= MAX_TIMER_MS) return value;
  throw refusal(name, text, `an integer from 1 to ${MAX_TIMER_MS}`);
}

/** Returns the ratio of requests that get a span, and whether the client's decision comes first. */
function samplingOf(read: ReadVariable): { readonly ratio: number; readonly asParent: boolean } {
  const name = "OTEL_TRACES_SAMPLER";
  const text = read(name) ?? "parentbased_always_on";
  const [, parent, kind = ""] =
    /^(parentbased_)?(always_on|always_off|traceidratio)$/i.exec(text) ?? [];

  const ratio = { always_on: 1, always_off: 0, traceidratio: ratioOf(read) }[kind.toLowerCase()];
  if (ratio !== undefined) return { ratio, asParent: parent !== undefined };

  const samplers = "always_on, always_off or traceidratio, each alone or after parentbased_";
  throw refusal(name, text, samplers);
}

function ratioOf(read: ReadVariable): number {
  const name = "OTEL_TRACES_SAMPLER_ARG";
  const text = read(name) ?? "1";
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return ratio;
  throw refusal(name, text, "a number from 0 to 1");
}

/**
 * Whether to continue a client's trace. Baggage has no effect: this service calls no other service.
 */
function continuesTraces(read: ReadVariable): boolean {
  const name = "OTEL_PROPAGATORS";
  const text = read(name) ?? "tracecontext,baggage";
  const propagators = text.split(",").map((propagator) => propagator.trim());
  if (propagators.every((propagator) => ["tracecontext", "baggage"].includes(propagator)))
    return propagators.includes("tracecontext");

  if (text === "none") return false;
  throw refusal(name, text, "tracecontext, baggage or none");
}
