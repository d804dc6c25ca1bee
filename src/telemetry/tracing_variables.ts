import { MAX_TIMER_MS } from "../async/timers.ts";
import { ConfigError } from "../errors.ts";

/** Reads an environment variable: `undefined` if it is unset or blank. */
export type ReadVariable = (name: string) => string | undefined;

/** OpenTelemetry's variables for traces, parsed. */
export type OtelVariables = ReturnType<typeof readOtelVariables>;

/**
 * Reads the variables of OpenTelemetry that are not among our settings. The exporter reads those of
 * headers, compression and certificates itself; here they are only checked.
 * https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
 *
 * @throws {ConfigError} If a value cannot be obeyed.
 */
export function readOtelVariables(read: ReadVariable) {
  requireChoice(ofExporter(read, "PROTOCOL"), ["http/protobuf"]);
  requireChoice(ofExporter(read, "COMPRESSION"), ["none", "gzip"]);

  const ofBatches = (what: string) => given(read, `OTEL_BSP_${what}`);
  const maxQueueSize = integerOf(ofBatches("MAX_QUEUE_SIZE"), 2_048);
  return {
    /** The files that the exporter reads. It would go on without one that is missing. */
    files: ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"].flatMap(
      (what) => ofExporter(read, what) ?? [],
    ),
    timeoutMs: integerOf(ofExporter(read, "TIMEOUT"), 10_000, MAX_TIMER_MS),
    batches: {
      maxQueueSize,
      maxExportBatchSize: integerOf(
        ofBatches("MAX_EXPORT_BATCH_SIZE"),
        Math.min(512, maxQueueSize),
        maxQueueSize,
      ),
      scheduledDelayMillis: integerOf(ofBatches("SCHEDULE_DELAY"), 5_000, MAX_TIMER_MS),
      exportTimeoutMillis: integerOf(ofBatches("EXPORT_TIMEOUT"), 30_000, MAX_TIMER_MS),
    },
    sampling: samplingOf(read),
    continuesTraces: continuesTraces(read),
    ignored: IGNORED.filter((name) => !/^(?:none)?$/.test(read(name) ?? "")),
  };
}

/** Variables of the specification that have nothing to set here. */
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

/** A variable that is set. */
interface Variable {
  readonly name: string;
  readonly text: string;
}

function given(read: ReadVariable, name: string): Variable | undefined {
  const text = read(name);
  return text === undefined ? undefined : { name, text };
}

/** The variable of the exporter: that of traces wins over that of all signals. */
function ofExporter(read: ReadVariable, what: string): Variable | undefined {
  return (
    given(read, `OTEL_EXPORTER_OTLP_TRACES_${what}`) ?? given(read, `OTEL_EXPORTER_OTLP_${what}`)
  );
}

function refusal({ name, text }: Variable, expected: string): ConfigError {
  return new ConfigError(`Cannot use ${name}=${text}: expected ${expected}`);
}

function requireChoice(variable: Variable | undefined, choices: readonly string[]): void {
  if (variable !== undefined && !choices.includes(variable.text))
    throw refusal(variable, choices.join(" or "));
}

function integerOf(
  variable: Variable | undefined,
  preset: number,
  max = Number.MAX_SAFE_INTEGER,
): number {
  if (variable === undefined) return preset;

  const value = Number(variable.text);
  if (/^\d+$/.test(variable.text) && value >= 1 && value <= max) return value;
  throw refusal(variable, `an integer from 1 to ${max}`);
}

/** Which requests get a span: a share of them, and whether the client's span decides before. */
function samplingOf(read: ReadVariable): { readonly ratio: number; readonly asParent: boolean } {
  const name = "OTEL_TRACES_SAMPLER";
  const text = read(name) ?? "parentbased_always_on";
  const [, parent, kind = ""] =
    /^(parentbased_)?(always_on|always_off|traceidratio)$/i.exec(text) ?? [];

  const ratio = { always_on: 1, always_off: 0, traceidratio: ratioOf(read) }[kind.toLowerCase()];
  if (ratio !== undefined) return { ratio, asParent: parent !== undefined };

  const samplers = "always_on, always_off or traceidratio, each alone or after parentbased_";
  throw refusal({ name, text }, samplers);
}

function ratioOf(read: ReadVariable): number {
  const name = "OTEL_TRACES_SAMPLER_ARG";
  const text = read(name) ?? "1";
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return ratio;
  throw refusal({ name, text }, "a number from 0 to 1");
}

/** Whether the trace of a client goes on here. Its baggage is for services that this one calls. */
function continuesTraces(read: ReadVariable): boolean {
  const name = "OTEL_PROPAGATORS";
  const text = read(name) ?? "tracecontext,baggage";
  const propagators = text.split(",").map((propagator) => propagator.trim());
  if (propagators.every((propagator) => ["tracecontext", "baggage"].includes(propagator)))
    return propagators.includes("tracecontext");

  if (text === "none") return false;
  throw refusal({ name, text }, "tracecontext, baggage or none");
}
