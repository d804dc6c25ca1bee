import { expect, test } from "bun:test";

import { ConfigError } from "../../src/errors.ts";
import { loggableSettings, parseConfig } from "../../src/settings/settings.ts";
import { PASSWORDS } from "./passwords.ts";

test("parseConfig() takes a collector of traces", () => {
  const OTEL_EXPORTER_OTLP_ENDPOINT = "https://otel.example.com/of/us";
  const OTEL_SERVICE_NAME = "greenhouse";
  const { tracing } = parseConfig({ OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME });
  expect(tracing).toEqual({
    endpoint: new URL(`${OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`),
    serviceName: OTEL_SERVICE_NAME,
  });
});

test("loggableSettings() shows the collector", () => {
  const config = parseConfig({
    LOG_FORMAT: "json",
    OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318",
  });
  expect(loggableSettings(config)).toMatchObject({
    tracing: { endpoint: "http://127.0.0.1:4318/v1/traces", serviceName: "plant-store" },
  });
});

test("parseConfig() refuses quotes in OpenTelemetry's own variables, if traces are sent", () => {
  const quoted = { OTEL_EXPORTER_OTLP_HEADERS: '"authorization=secret"' };
  expect(parseConfig(quoted).tracing).toBeUndefined();
  expect(() =>
    parseConfig({ ...quoted, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" }),
  ).toThrow(
    new ConfigError("Cannot use OTEL_EXPORTER_OTLP_HEADERS: remove the quotes around its value"),
  );
});

test.each([
  "otel.example.com",
  "otel.example.com:4318",
  "grpc://otel.example.com",
  "https://otel.example.com/?",
  "https://otel.example.com/?key=secret",
  "https://otel.example.com/#key=secret",
  ...PASSWORDS,
])("parseConfig() refuses the collector %s, without repeating a secret", (endpoint) => {
  const refusal = () => parseConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint });
  expect(refusal).toThrow(ConfigError);
  expect(refusal).toThrow("OTEL_EXPORTER_OTLP_ENDPOINT");
  expect(refusal).toThrow(
    "expected an http or https URL without a password, a query and a fragment",
  );
  expect(refusal).not.toThrow("secret");
});
