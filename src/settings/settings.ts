import { JWT_ALGORITHMS } from "../auth/jwt.ts";
import { describeHost } from "../database/postgres/url.ts";
import {
  type Input,
  isComplete,
  parseChoice,
  parseChoices,
  parseBaseUrl,
  parseDatabaseUrl,
  parseInteger,
  parseJwksUrl,
  parseOrigins,
  parseScope,
  parseSwitch,
  parseTimeout,
  parseTokens,
  refusal,
} from "./parsers.ts";
import { type DatabaseLocation } from "../database/open_database.ts";

/** One value of the configuration. */
export interface Setting<Value, Variable extends string = string> {
  /** Its heading in `--help`. */
  readonly group: "Network" | "Database" | "Authentication" | "Limits" | "TLS" | "Observability";
  /** The environment variables that it is parsed from, each with its default; an empty default means none. */
  readonly variables: Readonly<Record<Variable, string>>;
  /** The flag that overrides its only variable, such as `--port <number>`, and has its name. @default none */
  readonly flag?: string;
  /** Its meaning, for `--help` and the README. */
  readonly meaning: string;
  /**
   * Parses the values of its variables, or their defaults.
   *
   * @throws {ConfigError} If a value cannot be used; the message names the variable or the flag, and no secret.
   */
  parse(inputs: Inputs<Variable>): Value;
  /** What the log of the start has of the value: no secret. */
  log(value: NoInfer<Value>): unknown;
}

/** The values, by the names of the variables. */
type Inputs<Variable extends string> = Readonly<Record<Variable, Input>>;

/** Declares a setting: `parse` gets only its own variables, and `log` the value that `parse` returns. */
function setting<Variable extends string, Value>(declared: Setting<Value, Variable>): Setting<Value> {
  return declared;
}

/**
 * Everything that an operator can set, in the order of `serve --help`. The type `Config`, the parsing, the help and the
 * log of the start follow from an entry.
 */
export const SETTINGS = {
  host: setting({
    group: "Network",
    variables: { HOST: "127.0.0.1" },
    flag: "--host <address>",
    meaning: "the address to listen on",
    // A URL has brackets around an IPv6 address, which are not part of it (RFC 3986 section 3.2.2).
    parse: ({ HOST }) => HOST.text.replace(/^\[(.+)\]$/, "$1"),
    log: asIs,
  }),
  port: setting({
    group: "Network",
    variables: { PORT: "3000" },
    flag: "--port <number>",
    meaning: "the port to listen on; 0 takes a free one",
    parse: ({ PORT }) => parseInteger(PORT, 0, 65_535),
    log: asIs,
  }),
  corsOrigins: setting({
    group: "Network",
    variables: { CORS_ORIGINS: "" },
    meaning: "origins whose pages may call, comma-separated, such as `https://app.example.org`",
    parse: ({ CORS_ORIGINS }) => parseOrigins(CORS_ORIGINS),
    log: (origins) => origins.join(", "),
  }),
  trustProxy: setting({
    group: "Network",
    variables: { TRUST_PROXY: "off" },
    meaning: "the header in which a proxy names the client, for the log: `X-Forwarded-For`, `Forwarded` or `off`",
    parse: ({ TRUST_PROXY }) => parseChoice(TRUST_PROXY, ["off", "X-Forwarded-For", "Forwarded"]),
    log: asIs,
  }),
  docs: setting({
    group: "Network",
    variables: { DOCS: "on" },
    meaning: "whether `/swagger` is served: `on` or `off`",
    parse: ({ DOCS }) => parseSwitch(DOCS),
    log: asIs,
  }),
  database: setting({
    group: "Database",
    variables: { DATABASE_URL: "file:plants.db" },
    flag: "--database <url>",
    meaning: "where plants are kept: `file:PATH` of a SQLite database, or `postgres://…`",
    parse: ({ DATABASE_URL }) => parseDatabaseUrl(DATABASE_URL),
    log: describeDatabase,
  }),
  databaseUrlFile: setting({
    group: "Database",
    variables: { DATABASE_URL_FILE: "" },
    meaning: "a file that holds the database's URL, in the place of the variable",
    parse: ({ DATABASE_URL_FILE }) => DATABASE_URL_FILE.text || undefined,
    log: asIs,
  }),
  authTokens: setting({
    group: "Authentication",
    variables: { AUTH_TOKENS: "" },
    meaning: "static tokens, comma-separated, each at least 16 characters",
    parse: ({ AUTH_TOKENS }) => parseTokens(AUTH_TOKENS),
    log: (tokens) => tokens.length,
  }),
  authTokensFile: setting({
    group: "Authentication",
    variables: { AUTH_TOKENS_FILE: "" },
    meaning: "a file of more static tokens, one a line or comma-separated",
    parse: ({ AUTH_TOKENS_FILE }) => AUTH_TOKENS_FILE.text || undefined,
    log: asIs,
  }),
  jwt: setting({
    group: "Authentication",
    variables: { AUTH_JWKS_URL: "", AUTH_ISSUER: "", AUTH_AUDIENCE: "" },
    meaning: "accept the JWTs of an identity provider: all three or none",
    parse({ AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE }) {
      if (!isComplete([AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE])) return undefined;
      return { jwksUrl: parseJwksUrl(AUTH_JWKS_URL), issuer: AUTH_ISSUER.text, audience: AUTH_AUDIENCE.text };
    },
    // Without the query of the URL, which may have a key.
    log: (jwt) =>
      jwt && { jwksUrl: jwt.jwksUrl.origin + jwt.jwksUrl.pathname, issuer: jwt.issuer, audience: jwt.audience },
  }),
  jwtScope: setting({
    group: "Authentication",
    variables: { AUTH_SCOPE: "" },
    meaning: "what the `scope` of a JWT has to hold; without it every JWT may do everything",
    parse: ({ AUTH_SCOPE }) => (AUTH_SCOPE.text === "" ? undefined : parseScope(AUTH_SCOPE)),
    log: asIs,
  }),
  jwtAlgorithms: setting({
    group: "Authentication",
    variables: { AUTH_ALGORITHMS: "" },
    meaning: "what may sign a JWT, such as `ES256,EdDSA`; without it all that are safe",
    parse: ({ AUTH_ALGORITHMS }) =>
      AUTH_ALGORITHMS.text === "" ? undefined : parseChoices(AUTH_ALGORITHMS, JWT_ALGORITHMS),
    log: (algorithms) => algorithms?.join(","),
  }),
  production: setting({
    group: "Authentication",
    variables: { NODE_ENV: "" },
    meaning: "with `production` no token is made at the first start",
    parse: ({ NODE_ENV }) => NODE_ENV.text === "production",
    log: asIs,
  }),
  maxBodyBytes: setting({
    group: "Limits",
    variables: { MAX_BODY_BYTES: "65536" },
    meaning: "the most a request's body may have, in bytes",
    parse: ({ MAX_BODY_BYTES }) => parseInteger(MAX_BODY_BYTES, 1),
    log: asIs,
  }),
  queueLimit: setting({
    group: "Limits",
    variables: { QUEUE_LIMIT: "10000" },
    meaning: "plants that may wait for a commit",
    parse: ({ QUEUE_LIMIT }) => parseInteger(QUEUE_LIMIT, 1),
    log: asIs,
  }),
  requestTimeoutMs: setting({
    group: "Limits",
    variables: { REQUEST_TIMEOUT_MS: "5000" },
    meaning: "from the body's end to the response, in milliseconds",
    parse: ({ REQUEST_TIMEOUT_MS }) => parseTimeout(REQUEST_TIMEOUT_MS),
    log: asIs,
  }),
  shutdownTimeoutMs: setting({
    group: "Limits",
    variables: { SHUTDOWN_TIMEOUT_MS: "10000" },
    meaning: "time to stop after a signal, in milliseconds; a third of it for plants in flight",
    parse: ({ SHUTDOWN_TIMEOUT_MS }) => parseTimeout(SHUTDOWN_TIMEOUT_MS),
    log: asIs,
  }),
  tls: setting({
    group: "TLS",
    variables: { TLS_CERT_FILE: "", TLS_KEY_FILE: "" },
    meaning: "serve HTTPS with these PEM files",
    parse: ({ TLS_CERT_FILE, TLS_KEY_FILE }) =>
      isComplete([TLS_CERT_FILE, TLS_KEY_FILE])
        ? { certFile: TLS_CERT_FILE.text, keyFile: TLS_KEY_FILE.text }
        : undefined,
    log: (tls) => tls && { certFile: tls.certFile, keyFile: tls.keyFile },
  }),
  logLevel: setting({
    group: "Observability",
    variables: { LOG_LEVEL: "info" },
    meaning: "from which level on to log: `debug`, `info`, `warning` or `error`",
    parse: ({ LOG_LEVEL }) => parseChoice(LOG_LEVEL, ["debug", "info", "warning", "error"]),
    log: asIs,
  }),
  logFormat: setting({
    group: "Observability",
    variables: { LOG_FORMAT: "" },
    meaning: "how to log: `pretty` or `json`; without it pretty on a terminal and JSON elsewhere",
    parse: ({ LOG_FORMAT }) => (LOG_FORMAT.text === "" ? undefined : parseChoice(LOG_FORMAT, ["pretty", "json"])),
    log: asIs,
  }),
  accessLog: setting({
    group: "Observability",
    variables: { ACCESS_LOG: "off" },
    meaning: "whether every request is logged: `on` or `off`",
    parse: ({ ACCESS_LOG }) => parseSwitch(ACCESS_LOG),
    log: asIs,
  }),
  tracing: setting({
    group: "Observability",
    variables: { OTEL_EXPORTER_OTLP_ENDPOINT: "", OTEL_SERVICE_NAME: "plant-store" },
    meaning: "send traces to this collector, such as `http://127.0.0.1:4318`, under this name",
    parse: ({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SERVICE_NAME: serviceName }) =>
      endpoint.text === "" ? undefined : { endpoint: parseBaseUrl(endpoint), serviceName: serviceName.text },
    log: (tracing) => tracing && { endpoint: tracing.endpoint.href, serviceName: tracing.serviceName },
  }),
};

/** The configuration, parsed and checked. */
export type Config = {
  readonly [Name in keyof typeof SETTINGS]: ReturnType<(typeof SETTINGS)[Name]["parse"]>;
};

/** The environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The flags of a command line, by their names. */
export type Flags = Readonly<Record<string, unknown>>;

/**
 * Parses the configuration. An empty variable counts as unset, like a line `PORT=` in a file. An empty flag is refused,
 * because a shell makes one from an unset variable.
 *
 * @throws {ConfigError} If a value cannot be used; the message names the variable or the flag, and no secret.
 *
 * @example
 * ```ts
 * parseConfig({ PORT: "8080" }).port; // 8080
 * ```
 */
export function parseConfig(environment: Environment, flags: Flags = {}): Config {
  const values = Object.entries(SETTINGS).map(([name, { flag, variables, parse }]) => {
    const typed = flag === undefined ? undefined : flags[name];
    if (typed === "") throw refusal({ name: `--${name}`, text: "" }, "expected a value, or no flag for the default");
    const inputs = Object.entries(variables).map(([variable, preset]): [string, Input] => {
      if (typeof typed === "string") return [variable, { name: `--${name}`, text: typed }];
      return [variable, { name: variable, text: environment[variable] || preset }];
    });
    return [name, (parse as Setting<unknown>["parse"])(Object.fromEntries(inputs))];
  });
  return Object.fromEntries(values) as Config;
}

/** The part of the configuration that may be logged. For people, it is the database and what differs from the defaults. */
export function loggableSettings(config: Config): Record<string, unknown> {
  const logged = loggable(config);
  if (config.logFormat !== "pretty") return Object.fromEntries(logged);
  const defaults = new Map(loggable(parseConfig({})));
  return Object.fromEntries(
    logged.filter(([name, value]) => name === "database" || (value !== defaults.get(name) && name !== "logFormat")),
  );
}

function loggable(config: Config): [name: string, value: unknown][] {
  const settings: [string, Setting<unknown>][] = Object.entries(SETTINGS);
  return settings.map(([name, { log }]) => [name, log(config[name as keyof Config])]);
}

function describeDatabase(location: DatabaseLocation) {
  if (location.adapter === "sqlite") return { adapter: location.adapter, path: location.path };
  const { hosts, database, username, sslmode } = location.url;
  return { adapter: location.adapter, hosts: hosts.map(describeHost), database, username, sslmode };
}

/** Not for objects: a setting names each member that is logged. */
function asIs(value: string | number | boolean | undefined): typeof value {
  return value;
}
