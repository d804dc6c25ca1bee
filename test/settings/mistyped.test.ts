import { expect, test } from "bun:test";

import { mistypedVariables } from "../../src/settings/mistyped.ts";

test.each([
  ["DATABSE_URL", "DATABASE_URL"],
  ["DATABASE_URI", "DATABASE_URL"],
  ["AUTH_TOKEN", "AUTH_TOKENS"],
  ["AUTH_TOKNES", "AUTH_TOKENS"],
  ["LOGLEVEL", "LOG_LEVEL"],
  ["MAX_BODY_BYTE", "MAX_BODY_BYTES"],
])("%s is named, with %s", (variable, meant) => {
  expect(mistypedVariables({ [variable]: "secret" })).toEqual([
    `Ignored ${variable}: did you mean ${meant}?`,
  ]);
});

test("settings, what others read, and what is empty are not named", () => {
  const names =
    "AUTH_TOKENS AUTH_TOKENS_FILE DATABASE_URL DATABASE_URL_FILE HOME HOSTNAME LANG OLDPWD PATH PWD SHLVL TERM TZ POST HOSTS " +
    "HTTPS_PROXY NODE_EXTRA_CA_CERTS NODE_OPTIONS SSL_CERT_FILE SSL_CERT_DIR OTEL_LOGS_EXPORTER OTEL_METRICS_EXPORTER " +
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT PLANT_STORE_PORT PLANT_STORE_SERVICE_HOST PGHOST";
  const environment = Object.fromEntries(names.split(" ").map((name) => [name, "x"]));
  expect(mistypedVariables({ ...environment, DATABSE_URL: "" })).toEqual([]);
});
