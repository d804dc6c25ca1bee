import { LOG_FORMATS, LOG_LEVELS } from "../telemetry/logging.ts";
import { JWT_ALGORITHMS } from "../auth/jwt.ts";
import { describeHost } from "../database/postgres/url.ts";
import {
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
} from "./setting_parsers.ts";
import { type DatabaseLocation } from "../database/open_database.ts";
import { setting } from "./setting_table.ts";

/**
 * Everything an operator can set. A new setting is an entry here and a row in the README, which a test demands: the
 * type `Config`, the parsing, `serve --help` and what the start logs follow from the entry.
 */
export const SETTINGS = {
  host: setting({
    variables: { HOST: "127.0.0.1" },
    flag: "--host <address>",
    meaning: "the address to listen on",
    // In a URL an IPv6 address stands in brackets, which belong to the URL (RFC 3986 section 3.2.2).
    parse: ({ HOST }) => HOST.replace(/^\[(.+)\]$/, "$1"),
    log: asIs,
  }),
  port: setting({
    variables: { PORT: "3000" },
    flag: "--port <number>",
    meaning: "the port to listen on; 0 takes a free one",
    parse: ({ PORT }) => parseInteger("PORT", PORT, { min: 0, max: 65_535 }),
    log: asIs,
  }),
  database: setting({
    variables: { DATABASE_URL: "file:plants.db" },
    flag: "--database <url>",
    meaning: "where plants are kept: `file:PATH` of a SQLite database, or `postgres://…`",
    parse: ({ DATABASE_URL }) => parseDatabaseUrl("DATABASE_URL", DATABASE_URL),
    log: describeDatabase,
  }),
  databaseUrlFile: setting({
    variables: { DATABASE_URL_FILE: "" },
    meaning: "a file that holds the database's URL, in the place of the variable",
    parse: ({ DATABASE_URL_FILE }) => DATABASE_URL_FILE || undefined,
    log: asIs,
  }),
  authTokens: setting({
    variables: { AUTH_TOKENS: "" },
    meaning: "static tokens, comma-separated, each at least 16 characters",
    parse: ({ AUTH_TOKENS }) => parseTokens("AUTH_TOKENS", AUTH_TOKENS),
    log: (tokens) => tokens.length,
  }),
  authTokensFile: setting({
    variables: { AUTH_TOKENS_FILE: "" },
    meaning: "a file of more static tokens, one a line or comma-separated",
    parse: ({ AUTH_TOKENS_FILE }) => AUTH_TOKENS_FILE || undefined,
    log: asIs,
  }),
  jwt: setting({
    variables: { AUTH_JWKS_URL: "", AUTH_ISSUER: "", AUTH_AUDIENCE: "" },
    meaning: "accept the JWTs of an identity provider: all three or none",
    parse({ AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE }) {
      if (!isComplete({ AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE })) return undefined;
      const jwksUrl = parseJwksUrl("AUTH_JWKS_URL", AUTH_JWKS_URL);
      return { jwksUrl, issuer: AUTH_ISSUER, audience: AUTH_AUDIENCE };
    },
    // A URL's query may hold a key.
    log: (jwt) => jwt && { jwksUrl: withoutQuery(jwt.jwksUrl), issuer: jwt.issuer, audience: jwt.audience },
  }),
  jwtScope: setting({
    variables: { AUTH_SCOPE: "" },
    meaning: "what the `scope` of a JWT has to hold; without it every JWT may do everything",
    parse: ({ AUTH_SCOPE }) => (AUTH_SCOPE === "" ? undefined : parseScope("AUTH_SCOPE", AUTH_SCOPE)),
    log: asIs,
  }),
  jwtAlgorithms: setting({
    variables: { AUTH_ALGORITHMS: "" },
    meaning: "what may sign a JWT, such as `ES256,EdDSA`; without it all that are safe",
    parse: ({ AUTH_ALGORITHMS: list }) =>
      list === "" ? undefined : parseChoices("AUTH_ALGORITHMS", list, JWT_ALGORITHMS),
    log: (algorithms) => algorithms?.join(","),
  }),
  corsOrigins: setting({
    variables: { CORS_ORIGINS: "" },
    meaning: "origins whose pages may call, comma-separated, such as `https://app.example.org`",
    parse: ({ CORS_ORIGINS }) => parseOrigins("CORS_ORIGINS", CORS_ORIGINS),
    log: (origins) => origins.join(", "),
  }),
  trustProxy: setting({
    variables: { TRUST_PROXY: "off" },
    meaning: "the header in which a proxy names the client, for the log: `X-Forwarded-For`, `Forwarded` or `off`",
    parse: ({ TRUST_PROXY }) => parseChoice("TRUST_PROXY", TRUST_PROXY, ["off", "X-Forwarded-For", "Forwarded"]),
    log: asIs,
  }),
  maxBodyBytes: setting({
    variables: { MAX_BODY_BYTES: "65536" },
    meaning: "the most a request's body may have, in bytes",
    parse: ({ MAX_BODY_BYTES }) => parseInteger("MAX_BODY_BYTES", MAX_BODY_BYTES, { min: 1 }),
    log: asIs,
  }),
  queueLimit: setting({
    variables: { QUEUE_LIMIT: "10000" },
    meaning: "plants that may wait for a commit",
    parse: ({ QUEUE_LIMIT }) => parseInteger("QUEUE_LIMIT", QUEUE_LIMIT, { min: 1 }),
    log: asIs,
  }),
  requestTimeoutMs: setting({
    variables: { REQUEST_TIMEOUT_MS: "5000" },
    meaning: "from the body's end to the response, in milliseconds",
    parse: ({ REQUEST_TIMEOUT_MS }) => parseTimeout("REQUEST_TIMEOUT_MS", REQUEST_TIMEOUT_MS),
    log: asIs,
  }),
  shutdownTimeoutMs: setting({
    variables: { SHUTDOWN_TIMEOUT_MS: "10000" },
    meaning: "time to stop after a signal, in milliseconds; a third of it for plants in flight",
    parse: ({ SHUTDOWN_TIMEOUT_MS }) => parseTimeout("SHUTDOWN_TIMEOUT_MS", SHUTDOWN_TIMEOUT_MS),
    log: asIs,
  }),
  tls: setting({
    variables: { TLS_CERT_FILE: "", TLS_KEY_FILE: "" },
    meaning: "serve HTTPS with these PEM files",
    parse: ({ TLS_CERT_FILE, TLS_KEY_FILE }) =>
      isComplete({ TLS_CERT_FILE, TLS_KEY_FILE }) ? { certFile: TLS_CERT_FILE, keyFile: TLS_KEY_FILE } : undefined,
    log: (tls) => tls && { certFile: tls.certFile, keyFile: tls.keyFile },
  }),
  logLevel: setting({
    variables: { LOG_LEVEL: "info" },
    meaning: "from which level on to log: `debug`, `info`, `warning` or `error`",
    parse: ({ LOG_LEVEL }) => parseChoice("LOG_LEVEL", LOG_LEVEL, LOG_LEVELS),
    log: asIs,
  }),
  logFormat: setting({
    variables: { LOG_FORMAT: "" },
    meaning: "how to log: `pretty` or `json`; without it pretty on a terminal and JSON elsewhere",
    parse: ({ LOG_FORMAT }) => (LOG_FORMAT === "" ? undefined : parseChoice("LOG_FORMAT", LOG_FORMAT, LOG_FORMATS)),
    log: asIs,
  }),
  accessLog: setting({
    variables: { ACCESS_LOG: "off" },
    meaning: "whether every request is logged: `on` or `off`",
    parse: ({ ACCESS_LOG }) => parseSwitch("ACCESS_LOG", ACCESS_LOG),
    log: asIs,
  }),
  tracing: setting({
    variables: { OTEL_EXPORTER_OTLP_ENDPOINT: "", OTEL_SERVICE_NAME: "plant-store" },
    meaning: "send traces to this collector, such as `http://127.0.0.1:4318`, under this name",
    parse: ({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SERVICE_NAME: serviceName }) =>
      endpoint === "" ? undefined : { endpoint: parseBaseUrl("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), serviceName },
    log: (tracing) => tracing && { endpoint: tracing.endpoint.href, serviceName: tracing.serviceName },
  }),
  docs: setting({
    variables: { DOCS: "on" },
    meaning: "whether `/swagger` is served: `on` or `off`",
    parse: ({ DOCS }) => parseSwitch("DOCS", DOCS),
    log: asIs,
  }),
  production: setting({
    variables: { NODE_ENV: "" },
    meaning: "with `production` no token is made at the first start",
    parse: ({ NODE_ENV }) => NODE_ENV === "production",
    log: asIs,
  }),
};

function describeDatabase(location: DatabaseLocation) {
  if (location.adapter === "sqlite") return { adapter: location.adapter, path: location.path };
  const { hosts, database, username, sslmode } = location.url;
  return { adapter: location.adapter, hosts: hosts.map(describeHost), database, username, sslmode };
}

/** Not for objects: what is logged of one is named, member by member. */
function asIs(value: string | number | boolean | undefined): typeof value {
  return value;
}

function withoutQuery({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}
