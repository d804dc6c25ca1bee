import { LOG_FORMATS, LOG_LEVELS, type LogFormat, type LogLevel } from "../adapters/logging.ts";

/** Everything an operator can set, parsed and checked. */
export interface Config {
  /** The address to listen on. */
  readonly host: string;
  /** The port to listen on; 0 takes a free one. */
  readonly port: number;
  /** Where plants are kept. */
  readonly database: DatabaseLocation;
  /** Static bearer tokens. */
  readonly authTokens: readonly string[];
  /** The identity provider whose JWTs are accepted, if any. */
  readonly jwt: { readonly jwksUrl: URL; readonly issuer: string; readonly audience: string } | undefined;
  /** The most a request's body may have, in bytes. */
  readonly maxBodyBytes: number;
  /** How many plants may be without a response at once. */
  readonly queueLimit: number;
  /** From the body's end to the response, in milliseconds. */
  readonly requestTimeoutMs: number;
  /** How long open requests may take after a signal, in milliseconds. */
  readonly shutdownTimeoutMs: number;
  /** The paths of the certificate chain and the private key, in PEM: with them the server speaks HTTPS. */
  readonly tls: { readonly certFile: string; readonly keyFile: string } | undefined;
  /** From which level on to log. */
  readonly logLevel: LogLevel;
  /** How to log. @default pretty on a terminal, JSON elsewhere */
  readonly logFormat: LogFormat | undefined;
  /** Whether every request is logged. */
  readonly accessLog: boolean;
  /** Where traces go, and under what name, if anywhere. */
  readonly tracing: { readonly endpoint: URL; readonly serviceName: string } | undefined;
  /** Whether `/swagger` is served. */
  readonly docs: boolean;
  /** Whether this is production, where no token is made at the first start. */
  readonly production: boolean;
}

/** Which adapter a database is behind, and where it is. */
export interface DatabaseLocation {
  readonly adapter: "sqlite";
  readonly path: string;
}

/** A setting that cannot be followed: the program was called wrongly. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** Settings by the names of their environment variables; a flag replaces its variable before it gets here. */
export type Settings = Readonly<Record<string, string | undefined>>;

/**
 * Parses settings. An empty one counts as not set, as a line `PORT=` in a file means it.
 *
 * @throws {ConfigError} If a value cannot be followed; the message names the variable, and no secret.
 *
 * @example
 * ```ts
 * parseConfig({ PORT: "8080" }).port; // 8080
 * ```
 */
export function parseConfig(settings: Settings): Config {
  const text = (name: string, preset: string) => settings[name] || preset;
  const integer = (name: string, preset: number, min: number, max = Number.MAX_SAFE_INTEGER) =>
    parseInteger(name, text(name, String(preset)), min, max);
  return {
    host: text("HOST", "127.0.0.1"),
    port: integer("PORT", 3000, 0, 65_535),
    database: parseDatabaseUrl(text("DATABASE_URL", "file:plants.db")),
    authTokens: parseTokens(text("AUTH_TOKENS", "")),
    jwt: parseJwt(text("AUTH_JWKS_URL", ""), text("AUTH_ISSUER", ""), text("AUTH_AUDIENCE", "")),
    maxBodyBytes: integer("MAX_BODY_BYTES", 65_536, 1),
    queueLimit: integer("QUEUE_LIMIT", 10_000, 1),
    // Timers of the web take 32 bits.
    requestTimeoutMs: integer("REQUEST_TIMEOUT_MS", 5_000, 1, 2 ** 31 - 1),
    shutdownTimeoutMs: integer("SHUTDOWN_TIMEOUT_MS", 10_000, 1, 2 ** 31 - 1),
    tls: parseTls(text("TLS_CERT_FILE", ""), text("TLS_KEY_FILE", "")),
    logLevel: choice("LOG_LEVEL", text("LOG_LEVEL", "info"), LOG_LEVELS),
    logFormat: text("LOG_FORMAT", "") === "" ? undefined : choice("LOG_FORMAT", text("LOG_FORMAT", ""), LOG_FORMATS),
    accessLog: choice("ACCESS_LOG", text("ACCESS_LOG", "off"), SWITCH) === "on",
    tracing: parseTracing(text("OTEL_EXPORTER_OTLP_ENDPOINT", ""), text("OTEL_SERVICE_NAME", "plant-store")),
    docs: choice("DOCS", text("DOCS", "on"), SWITCH) === "on",
    production: settings["NODE_ENV"] === "production",
  };
}

function parseInteger(name: string, text: string, min: number, max: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new ConfigError(`Cannot use ${name} "${text}": expected an integer from ${min} to ${max}`);
}

const SWITCH = ["on", "off"] as const;

function choice<const Choice extends string>(name: string, text: string, choices: readonly Choice[]): Choice {
  const chosen = choices.find((known) => known === text);
  if (chosen !== undefined) return chosen;
  throw new ConfigError(`Cannot use ${name} "${text}": expected ${choices.map((known) => `"${known}"`).join(" or ")}`);
}

/** `file:PATH`, or the same as an absolute URL, `file:///PATH` (RFC 8089). */
function parseDatabaseUrl(url: string): DatabaseLocation {
  const path = /^file:(?:\/\/(?=\/))?([^?#]+)$/.exec(url)?.[1];
  // A memory database would lose every plant, and two slashes name a host.
  if (path !== undefined && !path.startsWith("//") && path !== ":memory:") return { adapter: "sqlite", path };
  throw new ConfigError(`Cannot use DATABASE_URL "${withoutSecrets(url)}": expected file:PATH`);
}

function withoutSecrets(url: string): string {
  return url.replace(/[?#].*/s, "…").replace(/^.*@/s, "…@");
}

function parseJwt(jwksUrl: string, issuer: string, audience: string): Config["jwt"] {
  const settings = Object.entries({ AUTH_JWKS_URL: jwksUrl, AUTH_ISSUER: issuer, AUTH_AUDIENCE: audience });
  const missing = settings.filter(([, value]) => value === "").map(([name]) => name);
  if (missing.length === settings.length) return undefined;
  if (missing.length === 0) return { jwksUrl: parseKeysUrl(jwksUrl), issuer, audience };
  throw new ConfigError(`Cannot accept JWTs without ${missing.join(" and ")}`);
}

/** Who can change the keys on their way can sign tokens: plain HTTP only where there is no way. */
function parseKeysUrl(text: string): URL {
  const url = URL.parse(text);
  const isLocal = url?.protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname);
  if (url !== null && (url.protocol === "https:" || isLocal) && !hasPassword(url)) return url;
  throw new ConfigError(`Cannot use AUTH_JWKS_URL "${withoutSecrets(text)}": expected an https URL without a password`);
}

/** What is in force gets into the log, so a secret has to come another way. */
function hasPassword({ username, password }: URL): boolean {
  return username !== "" || password !== "";
}

function parseTracing(endpoint: string, serviceName: string): Config["tracing"] {
  if (endpoint === "") return undefined;
  const url = URL.parse(endpoint);
  const isUsable = url !== null && /^https?:$/.test(url.protocol) && !/[?#]/.test(endpoint) && !hasPassword(url);
  if (isUsable) return { endpoint: url, serviceName };
  throw new ConfigError(
    `Cannot use OTEL_EXPORTER_OTLP_ENDPOINT "${withoutSecrets(endpoint)}": expected an http or https URL without a password, a query and a fragment`,
  );
}

function parseTls(certFile: string, keyFile: string): Config["tls"] {
  if (certFile === "" && keyFile === "") return undefined;
  if (certFile !== "" && keyFile !== "") return { certFile, keyFile };
  const [given, missing] = certFile === "" ? ["TLS_KEY_FILE", "TLS_CERT_FILE"] : ["TLS_CERT_FILE", "TLS_KEY_FILE"];
  throw new ConfigError(`Cannot use ${given} without ${missing}`);
}

const MIN_TOKEN_LENGTH = 16;

function parseTokens(list: string): string[] {
  const tokens = list
    .split(",")
    .map((token) => token.trim())
    .filter((token) => token !== "");
  tokens.forEach(requireUsable);
  return tokens;
}

function requireUsable(token: string, index: number): void {
  const where = `Cannot use AUTH_TOKENS: token ${index + 1}`;
  if (token.length < MIN_TOKEN_LENGTH) throw new ConfigError(`${where} has fewer than ${MIN_TOKEN_LENGTH} characters`);
  // RFC 6750, section 2.1: no client could send any other.
  if (!/^[\w\-.~+/]+=*$/.test(token)) throw new ConfigError(`${where} has characters that a bearer token cannot have`);
}
