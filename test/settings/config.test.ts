import { expect, test } from "bun:test";
import { ConfigError } from "../../src/errors.ts";
import { loggableSettings, parseConfig, SETTINGS } from "../../src/settings/settings.ts";

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

test("parseConfig() of nothing gives the defaults of the README", () => {
  const config = parseConfig({});
  expect(config).toMatchObject({ ...DEFAULTS, authTokens: [], corsOrigins: [] });
  const unset = Object.entries(config).filter(([, value]) => value === undefined);
  expect(
    unset
      .map(([name]) => name)
      .toSorted()
      .join(" "),
  ).toBe("authTokensFile databaseUrlFile jwt jwtAlgorithms jwtScope logFormat tls tracing");
});

test("parseConfig() takes an empty value as not set", () => {
  expect(parseConfig({ PORT: "", DATABASE_URL: "", DOCS: "" })).toEqual(parseConfig({}));
});

test("parseConfig() prefers a flag to its variable, and refuses an empty one", () => {
  expect(parseConfig({ PORT: "1", HOST: "::1" }, { port: "2" })).toMatchObject({ port: 2, host: "::1" });
  for (const flag of ["host", "port", "database"]) {
    expect(() => parseConfig({}, { [flag]: "" })).toThrow(ConfigError);
    expect(() => parseConfig({}, { [flag]: "" })).toThrow(`Cannot use --${flag} "": expected a value`);
  }
  // What was typed is named.
  expect(() => parseConfig({ PORT: "1" }, { port: "x" })).toThrow("Cannot use --port x: expected");
  expect(() => parseConfig({ PORT: "x" }, { host: "::1" })).toThrow("Cannot use PORT x: expected");
  for (const flag of ["json", "dryRun"]) {
    expect(parseConfig({}, { [flag]: true })).toEqual(parseConfig({}));
  }
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
    { DOCS: "false", ACCESS_LOG: "true" },
    { docs: false, accessLog: true },
  ],
  [{ AUTH_TOKENS: "aaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbb," }, { authTokens: ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"] }],
  [
    { CORS_ORIGINS: "https://app.example.org, http://localhost:5173," },
    { corsOrigins: ["https://app.example.org", "http://localhost:5173"] },
  ],
] as [Record<string, string>, object][])("parseConfig() takes %j", (settings, expected) => {
  expect(parseConfig(settings)).toMatchObject(expected);
});

test.each([
  ["file:plants.db", "plants.db"],
  ["file:./a b/plants.db", "./a b/plants.db"],
  ["file:/var/lib/plants.db", "/var/lib/plants.db"],
  ["file:///var/lib/plants.db", "/var/lib/plants.db"],
  ["file: plants.db\n", "plants.db"],
  ["plants.db", "plants.db"],
  ["./a b/plants.db", "./a b/plants.db"],
])("parseConfig() takes DATABASE_URL %s", (url, path) => {
  expect(parseConfig({ DATABASE_URL: url }).database).toEqual({ adapter: "sqlite", path });
});

const integers = ["PORT", "MAX_BODY_BYTES", "QUEUE_LIMIT", "REQUEST_TIMEOUT_MS", "SHUTDOWN_TIMEOUT_MS"];
const bad: [string, string, string][] = [
  ...integers.flatMap((name): [string, string, string][] =>
    ["x", "-1", "1.5", "1e3", " 1", "0x10"].map((value) => [name, value, "expected an integer from"]),
  ),
  ...integers.map((name): [string, string, string] => [name, "99999999999999999999", "expected"]),
  ["PORT", "65536", "Cannot use PORT 65536: expected 0 to 65535"],
  ["MAX_BODY_BYTES", "0", "expected 1 to 9007199254740991"],
  ["DATABASE_URL", "//host/plants.db", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", ":memory:", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "plants.db?mode=memory", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "file:", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "file: ", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "file::memory:", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "file:plants.db?mode=memory", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "file://host/plants.db", "expected file:PATH or postgres://…"],
  ["DATABASE_URL", "postgres://localhost/plants", "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE"],
  ...[
    "*",
    "null",
    "app.example.org",
    "https://app.example.org/",
    "https://app.example.org/x",
    "ftp://app.example.org",
  ].map((origin): [string, string, string] => [
    "CORS_ORIGINS",
    origin,
    "expected origins such as https://app.example.org",
  ]),
  ["DOCS", "yes", "expected on or off"],
  ["AUTH_ISSUER", "https://id.example.com/", "without AUTH_JWKS_URL and AUTH_AUDIENCE"],
  ["AUTH_JWKS_URL", "https://id.example.com/jwks", "without AUTH_ISSUER and AUTH_AUDIENCE"],
  ["AUTH_SCOPE", "plants:write plants:read", "expected the name of one scope"],
  ["AUTH_SCOPE", " ", "expected the name of one scope"],
  ["AUTH_ALGORITHMS", "HS256", "Cannot use AUTH_ALGORITHMS HS256: expected RS256, RS384"],
  ["AUTH_ALGORITHMS", "ES256,none", "Cannot use AUTH_ALGORITHMS none: expected RS256, RS384"],
  ["AUTH_ALGORITHMS", "ES256,", 'Cannot use AUTH_ALGORITHMS "": expected RS256, RS384'],
  ["LOG_LEVEL", "loud", "expected debug, info, warning or error"],
  ["LOG_FORMAT", "xml", "expected pretty or json"],
  ["ACCESS_LOG", "1", "expected on or off"],
  ["TLS_CERT_FILE", "cert.pem", "without TLS_KEY_FILE"],
  ["TLS_KEY_FILE", "key.pem", "without TLS_CERT_FILE"],
  ["AUTH_TOKENS", "aaaaaaaaaaaaaaaa,short", "token 2 has fewer than 16 characters"],
  ["AUTH_TOKENS", "no spaces are in a token", "token 1 has characters that a bearer token cannot have"],
];

test.each(bad)("parseConfig() refuses %s %p", (name, value, expected) => {
  expect(() => parseConfig({ [name]: value })).toThrow(ConfigError);
  expect(() => parseConfig({ [name]: value })).toThrow(expected);
});

test.each([
  "http://id.example.com/jwks",
  "ftp://localhost/jwks",
  "id.example.com/jwks",
  "http://localhost.example.com/",
])("parseConfig() refuses AUTH_JWKS_URL %s, which others could change on its way", (url) => {
  const settings = { AUTH_JWKS_URL: url, AUTH_ISSUER: "https://id.example.com/", AUTH_AUDIENCE: "plant-store" };
  expect(() => parseConfig(settings)).toThrow(`Cannot use AUTH_JWKS_URL ${url}: expected an https URL`);
});

test("parseConfig() refuses a password in AUTH_JWKS_URL, which the log would show", () => {
  const AUTH_JWKS_URL = "https://me:secret@id.example.com/jwks";
  const message = messageOf({ AUTH_JWKS_URL, AUTH_ISSUER: "me", AUTH_AUDIENCE: "plant-store" });
  expect(message).toContain("without a password");
  expect(message).not.toContain("secret");
});

test("parseConfig() takes an identity provider", () => {
  const settings = { AUTH_JWKS_URL: "https://id.example.com/jwks", AUTH_ISSUER: "me", AUTH_AUDIENCE: "plant-store" };
  const jwt = { jwksUrl: new URL("https://id.example.com/jwks"), issuer: "me", audience: "plant-store" };
  expect(parseConfig(settings).jwt).toEqual(jwt);
  expect(parseConfig({ ...settings, AUTH_JWKS_URL: "http://127.0.0.1:8080/jwks" }).jwt?.jwksUrl.port).toBe("8080");
});

test("parseConfig() takes a collector of traces", () => {
  const { tracing } = parseConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" });
  expect(tracing).toEqual({ endpoint: new URL("http://127.0.0.1:4318/"), serviceName: "plant-store" });
  const named = { OTEL_EXPORTER_OTLP_ENDPOINT: "https://otel.example.com/of/us/", OTEL_SERVICE_NAME: "greenhouse" };
  expect(parseConfig(named).tracing?.serviceName).toBe("greenhouse");
});

test.each([
  "otel.example.com",
  "otel.example.com:4318",
  "grpc://otel.example.com",
  "https://me:secret@otel.example.com",
  "https://me:p@secret@otel.example.com",
  "me:secret@otel.example.com:4318",
  "https://otel.example.com/?key=secret",
  "https://otel.example.com/#key=secret",
  "https://otel.example.com/?",
])("parseConfig() refuses OTEL_EXPORTER_OTLP_ENDPOINT %s", (url) => {
  const message = messageOf({ OTEL_EXPORTER_OTLP_ENDPOINT: url });
  expect(message).toContain("OTEL_EXPORTER_OTLP_ENDPOINT");
  expect(message).toContain("expected an http or https URL without a password, a query and a fragment");
  expect(message).not.toContain("secret");
});

test("parseConfig() never repeats a token or a password", () => {
  expect(messageOf({ AUTH_TOKENS: "secret" })).not.toContain("secret");
  for (const name of ["DATABASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"]) {
    for (const url of [
      "postgres://me:secret@host/plants",
      "postgres://me:secret/x@host/plants",
      "postgres://me:secret?x@host/plants",
      "postgres://me:secret#@host/plants",
      "postgresql:me:secret",
      "me:secret@host",
    ]) {
      expect(messageOf({ [name]: url })).not.toContain("secret");
    }
  }
});

/** Settings with a secret wherever one can be. */
const SECRETIVE = {
  AUTH_TOKENS: "secret-0123456789,secret-9876543210",
  AUTH_TOKENS_FILE: "tokens.txt",
  AUTH_JWKS_URL: "https://id.example.com/jwks?key=secret#secret",
  AUTH_ISSUER: "https://id.example.com/",
  AUTH_AUDIENCE: "plant-store",
  AUTH_SCOPE: "plants:write",
  AUTH_ALGORITHMS: "ES256, EdDSA",
  TLS_CERT_FILE: "cert.pem",
  TLS_KEY_FILE: "key.pem",
  LOG_FORMAT: "json",
  OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318",
};

test("loggableSettings() shows what is in force, and no secret", () => {
  expect(loggableSettings(parseConfig(SECRETIVE))).toEqual({
    ...DEFAULTS,
    databaseUrlFile: undefined,
    authTokens: 2,
    authTokensFile: "tokens.txt",
    jwt: { jwksUrl: "https://id.example.com/jwks", issuer: "https://id.example.com/", audience: "plant-store" },
    jwtScope: "plants:write",
    jwtAlgorithms: "ES256,EdDSA",
    corsOrigins: "",
    tls: { certFile: "cert.pem", keyFile: "key.pem" },
    logFormat: "json",
    tracing: { endpoint: "http://127.0.0.1:4318/", serviceName: "plant-store" },
  });
});

test("loggableSettings() shows nothing of what gets into a value beside the members that its setting names", () => {
  const { database, jwt, tls, tracing, ...config } = parseConfig(SECRETIVE);
  if (!jwt || !tls || !tracing) throw new Error("The settings were not taken");
  const extended = {
    ...config,
    database: { ...database, password: "secret" },
    jwt: { ...jwt, password: "secret" },
    tls: { ...tls, password: "secret" },
    tracing: { ...tracing, password: "secret" },
    password: "secret",
  };
  expect(JSON.stringify(loggableSettings(extended))).not.toContain("secret");
});

function messageOf(settings: Record<string, string>): string {
  try {
    parseConfig(settings);
  } catch (error) {
    return String(error);
  }
  throw new Error("The settings were taken");
}
