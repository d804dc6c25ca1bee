import { DATABASE_URLS } from "../database/databases.ts";
import { JWT_SETTINGS } from "./jwt_settings.ts";
import {
  bare,
  type Input,
  isComplete,
  parseChoice,
  parseDatabaseUrl,
  parseHost,
  parseInteger,
  parseOrigins,
  parseSwitch,
  parseTokens,
  refusal,
} from "./parsers.ts";
import { type Environment, type Setting, setting, valueOf } from "./setting.ts";
import { TRACING_SETTINGS } from "./tracing_settings.ts";

/**
 * All settings, in the order of `serve --help`. The type `Config`, the parsing, the help and the
 * startup log derive from this table.
 */
export const SETTINGS = {
  host: setting("Network", {
    variables: { HOST: "127.0.0.1" },
    flag: "--host <address>",
    meaning:
      "the address to listen on; `::` is every one, IPv4 too; `localhost` is 127.0.0.1 or ::1, not both",
    parse: parseHost,
  }),

  port: setting("Network", {
    variables: { PORT: "3000" },
    flag: "--port <number>",
    meaning: "the port to listen on; 0 takes a free one",
    parse: (port) => parseInteger(port, 0, 65_535),
  }),

  corsOrigins: setting("Network", {
    variables: { CORS_ORIGINS: "" },
    meaning: "origins whose pages may call, comma-separated, such as `https://app.example.org`",
    parse: parseOrigins,
    log: (origins) => origins.join(", "),
  }),

  trustProxy: setting("Network", {
    variables: { TRUST_PROXY: "off" },
    meaning:
      "the header in which a proxy names the client, for the log: `X-Forwarded-For`, `Forwarded` or `off`",
    parse: (header) => parseChoice(header, ["off", "X-Forwarded-For", "Forwarded"]),
  }),

  docs: setting("Network", {
    variables: { DOCS: "on" },
    meaning: "whether `/swagger` is served: `on` or `off`",
    parse: parseSwitch,
  }),

  database: setting("Database", {
    variables: { DATABASE_URL: "file:plants.db" },
    flag: "--database <url>",
    meaning: `where plants are kept: \`${DATABASE_URLS.replaceAll(" or ", "` or `")}\``,
    parse: parseDatabaseUrl,
    log: (database) => database.describe(),
  }),

  databaseUrlFile: setting("Database", {
    variables: { DATABASE_URL_FILE: "" },
    meaning: "a file that holds the database's URL, instead of the variable",
    parse: (file) => file.text || undefined,
  }),

  authTokens: setting("Authentication", {
    variables: { AUTH_TOKENS: "" },
    meaning: "static tokens, comma-separated, each at least 16 characters",
    parse: parseTokens,
    log: (tokens) => tokens.length,
  }),

  authTokensFile: setting("Authentication", {
    variables: { AUTH_TOKENS_FILE: "" },
    meaning: "a file of more static tokens, one per line or comma-separated",
    parse: (file) => file.text || undefined,
  }),

  ...JWT_SETTINGS,

  production: setting("Authentication", {
    variables: { NODE_ENV: "" },
    meaning: "with `production`, a start creates no database and no token",
    parse: parseProduction,
  }),

  maxBodyBytes: setting("Limits", {
    variables: { MAX_BODY_BYTES: "65536" },
    meaning: "maximum size of a request's body, in bytes",
    parse: (bytes) => parseInteger(bytes, 1),
  }),

  queueLimit: setting("Limits", {
    variables: { QUEUE_LIMIT: "10000" },
    meaning: "maximum number of plants waiting for a commit",
    parse: (plants) => parseInteger(plants, 1),
  }),

  requestTimeoutMs: setting("Limits", {
    variables: { REQUEST_TIMEOUT_MS: "5000" },
    meaning: "the time from a request's last byte to its response, in milliseconds; at most 240000",
    // Bun keeps no connection without traffic for longer than 255 seconds.
    parse: (timeout) => parseInteger(timeout, 1, 240_000),
  }),

  shutdownTimeoutMs: setting("Limits", {
    variables: { SHUTDOWN_TIMEOUT_MS: "10000" },
    meaning:
      "maximum time to shut down after a signal, in milliseconds; a third of it is for plants in flight",
    // A day.
    parse: (timeout) => parseInteger(timeout, 1, 86_400_000),
  }),

  tls: setting("TLS", {
    variables: { TLS_CERT_FILE: "", TLS_KEY_FILE: "" },
    meaning: "serve HTTPS with these PEM files",
    parse: (certFile, keyFile) =>
      isComplete([certFile, keyFile])
        ? { certFile: certFile.text, keyFile: keyFile.text }
        : undefined,
    log: (tls) => tls && { certFile: tls.certFile, keyFile: tls.keyFile },
  }),

  logLevel: setting("Observability", {
    variables: { LOG_LEVEL: "info" },
    meaning: "the lowest level to log: `info`, `warn` or `error`",
    parse: (level) => parseChoice(level, ["info", "warn", "error"]),
  }),

  logFormat: setting("Observability", {
    variables: { LOG_FORMAT: "" },
    meaning: "how to log: `pretty` or `json`; without it pretty on a terminal and JSON elsewhere",
    parse: (format) => (format.text === "" ? undefined : parseChoice(format, ["pretty", "json"])),
  }),

  accessLog: setting("Observability", {
    variables: { ACCESS_LOG: "off" },
    meaning: "whether every request is logged: `on` or `off`",
    parse: parseSwitch,
  }),

  ...TRACING_SETTINGS,
};

/** The names of all variables of the settings. */
export const VARIABLES: readonly string[] = Object.values(SETTINGS).flatMap(({ variables }) =>
  Object.keys(variables),
);

/**
 * Parses `NODE_ENV`, for which other programs accept any text. An operator who types `prod` or
 * `Production` means production.
 */
function parseProduction(environment: Input): boolean {
  if (environment.text === "production") return true;
  if (!/^prod/i.test(environment.text)) return false;
  throw refusal(environment, "expected production");
}

/** The configuration, parsed and checked. */
export type Config = {
  readonly [Name in keyof typeof SETTINGS]: ReturnType<(typeof SETTINGS)[Name]["parse"]>;
};

/** The flags of a command line, by their names. */
export type Flags = Readonly<Record<string, unknown>>;

/**
 * Parses the configuration. White space around a value is removed. Quotes around one and a comment
 * after one are refused: Docker's `--env-file` keeps them. An empty variable counts as unset, like a line `PORT=`
 * in a file. An empty flag is refused, because a shell makes one from an unset variable.
 *
 * @throws {ConfigError} If a value cannot be used; the message names the variable or the flag, and
 *   no secret.
 *
 * @example
 * ```ts
 * parseConfig({ PORT: "8080" }).port; // 8080
 * ```
 */
export function parseConfig(environment: Environment, flags: Flags = {}): Config {
  const values = Object.entries(SETTINGS).map(([name, { flag, variables, parse }]) => {
    const flagged = flag === undefined ? undefined : flags[name];
    const typed = typeof flagged === "string" ? bare({ name: `--${name}`, text: flagged }) : "";
    if (typed === "" && flagged !== undefined) {
      const expected = "expected a value; for the default, omit the flag";
      throw refusal({ name: `--${name}`, text: "" }, expected);
    }

    const inputs = Object.entries(variables).map(([variable, preset]): Input => {
      if (typed !== "") return { name: `--${name}`, text: typed };
      return { name: variable, text: valueOf(variable, environment) || preset };
    });
    return [name, parse(...inputs)];
  });

  const config = Object.fromEntries(values) as Config;
  for (const { check } of Object.values<Setting<unknown>>(SETTINGS)) check?.(config, environment);
  return config;
}

/**
 * The part of the configuration that may be logged. In the format for people, these are the
 * database and the settings that differ from their defaults.
 */
export function loggableSettings(config: Config): Record<string, unknown> {
  const logged = loggable(config);
  if (config.logFormat !== "pretty") return Object.fromEntries(logged);

  const defaults = new Map(loggable(parseConfig({})));
  const forPeople = logged.filter(([name, value]) => {
    if (name === "database") return true;
    return name !== "logFormat" && value !== defaults.get(name);
  });
  return Object.fromEntries(forPeople);
}

/** The values of the settings, for the log. */
function loggable(config: Config): [name: string, value: unknown][] {
  const settings: [string, Setting<unknown>][] = Object.entries(SETTINGS);
  // A setting with an object as its value chooses the members to log.
  const primitive = (value: unknown) => (typeof value === "object" ? undefined : value);
  return settings.map(([name, { log = primitive }]) => [name, log(config[name as keyof Config])]);
}
