import { expect, test } from "bun:test";

import { DATABASE_URLS } from "../../src/database/databases.ts";
import { ConfigError } from "../../src/errors.ts";
import {
  type Config,
  loggableSettings,
  parseConfig,
  SETTINGS,
} from "../../src/settings/settings.ts";
import { PASSWORDS } from "./passwords.ts";

/** The defaults of the README that the log has as they are. */
const DEFAULTS = {
  host: "127.0.0.1",
  port: 3000,
  database: { adapter: "sqlite", path: "plants.db" },
  trustProxy: "off",
  maxBodyBytes: 65_536,
  queueLimit: 10_000,
  requestTimeoutMs: 5_000,
  shutdownTimeoutMs: 10_000,
  logLevel: "info",
  accessLog: false,
  docs: true,
  production: false,
};

/** What can be compared: an adapter has functions. */
function described(config: Config) {
  return { ...config, database: config.database.describe() };
}

test("parseConfig() without settings returns the defaults of the README", () => {
  // Whatever else there is has no value.
  const config: object = described(parseConfig({}));
  expect(config).toEqual({ ...DEFAULTS, authTokens: [], corsOrigins: [] });
});

test("parseConfig() treats an empty value as not set", () => {
  const config = parseConfig({ PORT: "", DATABASE_URL: "", DOCS: "" });
  expect(described(config)).toEqual(described(parseConfig({})));
});

/** Each variable with a value that can be used. */
const USABLE: Readonly<Record<string, string>> = {
  HOST: "127.0.0.2",
  PORT: "1",
  CORS_ORIGINS: "https://app.example.org",
  TRUST_PROXY: "Forwarded",
  DOCS: "off",
  DATABASE_URL: "file:garden.db",
  DATABASE_URL_FILE: "url",
  AUTH_TOKENS: "secret-0123456789",
  AUTH_TOKENS_FILE: "tokens",
  AUTH_JWKS_URL: "https://id.example.org/jwks",
  AUTH_ISSUER: "https://id.example.org/",
  AUTH_AUDIENCE: "plant-store",
  AUTH_SCOPE: "plants:write",
  AUTH_SUBJECTS: "gardener,repo:garden/*",
  AUTH_ALGORITHMS: "ES256",
  NODE_ENV: "production",
  MAX_BODY_BYTES: "1",
  QUEUE_LIMIT: "1",
  REQUEST_TIMEOUT_MS: "1",
  SHUTDOWN_TIMEOUT_MS: "1",
  TLS_CERT_FILE: "cert.pem",
  TLS_KEY_FILE: "key.pem",
  LOG_LEVEL: "error",
  LOG_FORMAT: "json",
  ACCESS_LOG: "on",
  OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318",
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1:4318/of/us",
  OTEL_TRACES_EXPORTER: "otlp",
  OTEL_SDK_DISABLED: "false",
  OTEL_SERVICE_NAME: "garden",
};

/** Every variable of the settings. */
const VARIABLES = Object.values<{ readonly variables: object }>(SETTINGS).flatMap((setting) =>
  Object.keys(setting.variables),
);

test("parseConfig() takes white space off around every value, and refuses quotes without repeating it", () => {
  const config = described(parseConfig(USABLE));
  for (const variable of VARIABLES) {
    const value = USABLE[variable] ?? "";
    expect([variable, value === ""]).toEqual([variable, false]);

    for (const spaced of [` ${value}`, `${value}\r`, `\t${value}\n`, `\u00a0${value}\u2028`])
      expect(described(parseConfig({ ...USABLE, [variable]: spaced }))).toEqual(config);
    for (const quoted of [`"${value}"`, `'${value}'`, ` "${value}"\n`, `\`${value}\``]) {
      expect(() => parseConfig({ ...USABLE, [variable]: quoted })).toThrow(
        new ConfigError(`Cannot use ${variable}: remove the quotes around its value`),
      );
    }
  }

  const unset = parseConfig({ PORT: " ", NODE_ENV: "\n" });
  expect(described(unset)).toEqual(described(parseConfig({})));
  expect(parseConfig({}, { port: " 7 " }).port).toBe(7);
  expect(() => parseConfig({}, { host: "'::1'" })).toThrow(
    "Cannot use --host: remove the quotes around its value",
  );
  expect(() => parseConfig({}, { host: " " })).toThrow(
    "expected a value; for the default, omit the flag",
  );
});

test.each<[what: string, spoil: (value: string) => string, advice: string]>([
  ["half a pair of quotes", (value) => `"${value}`, "remove the quotes around its value"],
  ["the other half", (value) => `${value}'`, "remove the quotes around its value"],
  ["a comment", (value) => `${value} # ours`, "remove the comment after its value"],
  ["a comment after a tab", (value) => `${value}\t#ours`, "remove the comment after its value"],
  [
    "a variable",
    (value) => `${value}\${SUFFIX}`,
    "replace the `${…}` in its value: nothing has expanded it",
  ],
  [
    "a default of a variable",
    () => "${PLANTS:-x}",
    "replace the `${…}` in its value: nothing has expanded it",
  ],
  [
    "a zero-width space",
    (value) => `${value}\u200b`,
    "remove the invisible characters in its value",
  ],
  ["a soft hyphen", (value) => `\u00ad${value}`, "remove the invisible characters in its value"],
  [
    "a control character",
    (value) => `${value}\u0007`,
    "remove the invisible characters in its value",
  ],
])("parseConfig() refuses %s in every value", (_what, spoil, advice) => {
  for (const variable of VARIABLES)
    expect(() => parseConfig({ ...USABLE, [variable]: spoil(USABLE[variable] ?? "") })).toThrow(
      new ConfigError(`Cannot use ${variable}: ${advice}`),
    );
});

test("parseConfig() keeps what is in the middle of a value, or may be in a name", () => {
  for (const path of [`a "b" c's d.db`, "$HOME.db", "نمونه\u200cها.db"])
    expect(locationOf(path)).toEqual({ adapter: "sqlite", path });
});

function locationOf(url: string) {
  return parseConfig({ DATABASE_URL: url }).database.describe();
}

test.each([
  ["HOST", "127.0.0.1 localhost", "expected an IP address or a host name"],
  ["HOST", "http://127.0.0.1", "expected an IP address or a host name"],
])("parseConfig() refuses %s=%s", (variable, value, expected) => {
  expect(() => parseConfig({ ...USABLE, [variable]: value })).toThrow(
    new RegExp(`^Cannot use ${variable}=.*: ${expected}$`),
  );
});

test("parseConfig() prefers a flag to its variable, and names what was typed", () => {
  expect(parseConfig({ PORT: "1", HOST: "::1" }, { port: "2" })).toMatchObject({
    port: 2,
    host: "::1",
  });
  expect(() => parseConfig({ PORT: "x" }, { host: "::1" })).toThrow("Cannot use PORT=x: expected");
});

test("a flag is named like its setting, which has one variable", () => {
  const flags = Object.entries(SETTINGS).filter(([, { flag }]) => flag !== undefined);
  for (const [name, { flag, variables }] of flags) {
    expect(flag).toMatch(new RegExp(`^--${name} <[a-z]+>$`));
    expect(Object.keys(variables)).toHaveLength(1);
  }
  expect(flags.map(([name]) => name)).toEqual(["host", "port", "database"]);
});

test.each([
  [{ HOST: "[2001:db8::1]" }, { host: "2001:db8::1" }],
  [
    { DOCS: "off", ACCESS_LOG: "on" },
    { docs: false, accessLog: true },
  ],
  [
    { AUTH_TOKENS: "aaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbb," },
    { authTokens: ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"] },
  ],
  [
    { CORS_ORIGINS: "https://app.example.org, http://localhost:5173," },
    { corsOrigins: ["https://app.example.org", "http://localhost:5173"] },
  ],
] as [Record<string, string>, object][])("parseConfig() takes %j", (settings, expected) => {
  expect(parseConfig(settings)).toMatchObject(expected);
});

test.each([
  ["file:./a b/plants.db", "./a b/plants.db"],
  ["file:/var/lib/plants.db", "/var/lib/plants.db"],
  ["file:///var/lib/plants.db", "/var/lib/plants.db"],
  ["file: plants.db\n", "plants.db"],
  ["plants.db", "plants.db"],
  ["./a b/plants.db", "./a b/plants.db"],
])("parseConfig() takes DATABASE_URL %s", (url, path) => {
  expect(locationOf(url)).toEqual({ adapter: "sqlite", path });
});

const INTEGERS = [
  "PORT",
  "MAX_BODY_BYTES",
  "QUEUE_LIMIT",
  "REQUEST_TIMEOUT_MS",
  "SHUTDOWN_TIMEOUT_MS",
];
const NO_URL = `expected ${DATABASE_URLS}`;
const NO_ORIGIN = "expected origins such as https://app.example.org";

/** Values of a variable, and what is said of each. */
const refused: [values: string[], variable: string, says: string][] = [
  ...INTEGERS.flatMap((name): typeof refused => [
    [["x", "-1", "1.5", "1e3", "0x10"], name, "expected an integer from"],
    [["99999999999999999999"], name, "expected"],
  ]),
  [["65536"], "PORT", "Cannot use PORT=65536: expected 0 to 65535"],
  [["0"], "MAX_BODY_BYTES", "expected 1 to 9007199254740991"],
  [
    ["//host/plants.db", ":memory:", "plants.db?mode=memory", "file:", "file: "],
    "DATABASE_URL",
    NO_URL,
  ],
  [
    [
      "file::memory:",
      "file:plants.db?mode=memory",
      "file://host/plants.db",
      "file:postgres://host/plants",
    ],
    "DATABASE_URL",
    NO_URL,
  ],
  [["*", "null", "app.example.org", "https://app.example.org/"], "CORS_ORIGINS", NO_ORIGIN],
  [["https://app.example.org/x", "ftp://app.example.org"], "CORS_ORIGINS", NO_ORIGIN],
  [["prod", "Production", "PRODUCTION"], "NODE_ENV", "expected production"],
  [["no"], "DOCS", "Cannot use DOCS=no: expected on or off"],
  [["debug", "warning"], "LOG_LEVEL", "expected info, warn or error"],
  [["xml"], "LOG_FORMAT", "expected pretty or json"],
  [["1"], "ACCESS_LOG", "expected on or off"],
  [["cert.pem"], "TLS_CERT_FILE", "without TLS_KEY_FILE"],
  [["key.pem"], "TLS_KEY_FILE", "without TLS_CERT_FILE"],
  [["aaaaaaaaaaaaaaaa,short"], "AUTH_TOKENS", "token 2 has fewer than 16 characters"],
  [
    ["no spaces are in a token"],
    "AUTH_TOKENS",
    "token 1 has characters that a bearer token cannot have",
  ],
];

test.each(refused.flatMap(([values, ...rest]) => values.map((value) => [value, ...rest] as const)))(
  "parseConfig() refuses %p as %s: %s",
  (value, variable, says) => {
    expect(() => parseConfig({ [variable]: value })).toThrow(ConfigError);
    expect(() => parseConfig({ [variable]: value })).toThrow(says);
  },
);

test.each([
  ["AUTH_TOKENS", ["secret"], "fewer than 16 characters"],
  ["DATABASE_URL", PASSWORDS, "Cannot use"],
])("parseConfig() refuses a secret in %s without repeating it: %j", (variable, values, says) => {
  for (const value of values) {
    const refusal = () => parseConfig({ [variable]: value });
    expect(refusal).toThrow(variable);
    expect(refusal).toThrow(says);
    expect(refusal).not.toThrow("secret");
  }
});

/** Settings with secrets. */
const SECRETIVE = {
  AUTH_TOKENS: "secret-0123456789,secret-9876543210",
  AUTH_TOKENS_FILE: "tokens.txt",
  TLS_CERT_FILE: "cert.pem",
  TLS_KEY_FILE: "key.pem",
  LOG_FORMAT: "json",
};

test("loggableSettings() shows what is in force, and no secret", () => {
  expect(loggableSettings(parseConfig(SECRETIVE))).toEqual({
    ...DEFAULTS,
    authTokens: 2,
    authTokensFile: "tokens.txt",
    corsOrigins: "",
    tls: { certFile: "cert.pem", keyFile: "key.pem" },
    logFormat: "json",
  });
});

test("loggableSettings() shows only those members of a value that its setting names", () => {
  const config = parseConfig(USABLE);
  const groups = Object.entries<unknown>(config).filter(
    ([, value]) => typeof value === "object" && !Array.isArray(value),
  );
  expect(groups.map(([name]) => name)).toEqual(expect.arrayContaining(["database", "tls"]));

  const extended = groups.map(([name, value]) => [
    name,
    { ...(value as object), password: "secret" },
  ]);
  const logged = loggableSettings({ ...config, ...Object.fromEntries(extended) });
  expect(logged).toEqual(loggableSettings(config));
});
