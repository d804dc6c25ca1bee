import { parseBaseUrl, parseChoice } from "./parsers.ts";
import { type Environment, setting, valueOf } from "./setting.ts";

/** The settings of traces. */
export const TRACING_SETTINGS = {
  tracing: setting("Observability", {
    variables: {
      OTEL_EXPORTER_OTLP_ENDPOINT: "",
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "",
      OTEL_SERVICE_NAME: "plant-store",
      OTEL_TRACES_EXPORTER: "otlp",
      OTEL_SDK_DISABLED: "false",
    },
    meaning:
      "send traces to this collector, such as `http://127.0.0.1:4318`, under this name, unless the exporter is `none` or the SDK is disabled (`true`)",
    parse: (base, traces, serviceName, exporter, disabled) => {
      if (disabled.text.toLowerCase() === "true") return undefined;
      if (parseChoice(exporter, ["otlp", "none"]) === "none") return undefined;

      // The second one overrides the first, and is used unchanged.
      if (traces.text !== "")
        return { endpoint: parseBaseUrl(traces), serviceName: serviceName.text };
      if (base.text === "") return undefined;

      const { href } = parseBaseUrl(base);
      const endpoint = new URL(`${href.replace(/\/+$/, "")}/v1/traces`);
      return { endpoint, serviceName: serviceName.text };
    },
    log: (tracing) =>
      tracing && { endpoint: tracing.endpoint.href, serviceName: tracing.serviceName },
    check: requireBareOtel,
  }),
};

/** Checks the variables that OpenTelemetry itself reads, such as headers with a secret. */
function requireBareOtel(
  { tracing }: Readonly<Record<string, unknown>>,
  environment: Environment,
): void {
  if (tracing === undefined) return;

  for (const name of Object.keys(environment))
    if (name.startsWith("OTEL_")) valueOf(name, environment);
}
