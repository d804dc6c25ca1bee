import { expect, test } from "bun:test";

import { ignoredVariables } from "../../src/settings/ignored_variables.ts";

test.each([
  ["DATABSE_URL", "DATABASE_URL"],
  ["DATABASE_URI", "DATABASE_URL"],
  ["AUTH_TOKEN", "AUTH_TOKENS"],
  ["AUTH_TOKNES", "AUTH_TOKENS"],
  ["LOGLEVEL", "LOG_LEVEL"],
  ["MAX_BODY_BYTE", "MAX_BODY_BYTES"],
])("%s is named, with %s", (variable, meant) => {
  expect(ignoredVariables({ [variable]: "secret" }, {})).toEqual([
    `Ignored ${variable}: did you mean ${meant}?`,
  ]);
});

test("settings, what others read, and what is empty are not named", () => {
  const names =
    "AUTH_TOKENS AUTH_TOKENS_FILE DATABASE_URL DATABASE_URL_FILE HOME HOSTNAME LANG OLDPWD PATH PWD SHLVL TERM TZ POST HOSTS " +
    "HTTPS_PROXY NODE_EXTRA_CA_CERTS NODE_OPTIONS SSL_CERT_FILE SSL_CERT_DIR OTEL_LOGS_EXPORTER OTEL_METRICS_EXPORTER " +
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT PLANT_STORE_PORT PLANT_STORE_SERVICE_HOST PGHOST";
  const environment = Object.fromEntries(names.split(" ").map((name) => [name, "x"]));
  expect(ignoredVariables({ ...environment, DATABSE_URL: "" }, {})).toEqual([]);
});

test.each([
  ["another database", "file:plants.db", ["DATABASE_URL"]],
  ["the same database", "postgres://localhost/plants", []],
  ["no database", undefined, []],
])("with a flag that names %s, the overruled variables are named", (_, database, overruled) => {
  const environment = { DATABASE_URL: " postgres://localhost/plants\n", DATABASE_URL_FILE: "" };
  expect(ignoredVariables(environment, { database })).toEqual(
    overruled.map((variable) => `Ignored ${variable}: --database overrides it`),
  );
});
