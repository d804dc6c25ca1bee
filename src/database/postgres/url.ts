/** The parsed URL of a PostgreSQL database. */
export type PostgresUrl = ReturnType<typeof parsePostgresUrl>;

/** One server. `host` is a host name, an address, or the absolute path of a Unix socket's directory. */
export interface PostgresHost {
  readonly host: string;
  readonly port: number;
}

const PARAMETERS = [
  "host",
  "sslmode",
  "sslrootcert",
  "sslcert",
  "sslkey",
  "connect_timeout",
  "application_name",
] as const;

type UrlParameters = Readonly<Partial<Record<(typeof PARAMETERS)[number], string>>>;

/**
 * Parses a connection URI of libpq, with one host or several; the scheme may be `citus`, too
 * (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS).
 *
 * @throws {RangeError} If it is invalid. The message says what was expected, and never quotes the
 *   password.
 *
 * @example
 * ```ts
 * parsePostgresUrl("postgres://plants@db1,db2:5433/plants?sslmode=verify-full").hosts.length; // 2
 * ```
 */
export function parsePostgresUrl(url: string) {
  const [, username, password = "", hostList = "", database = "", query = ""] = URI.exec(url) ?? [];
  if (username === undefined) {
    // Quote nothing of it: it may be a bare password.
    const scheme = url.startsWith("citus:") ? "citus" : "postgres";
    throw new RangeError(`expected ${scheme}://USER:PASSWORD@HOST:PORT/DATABASE`);
  }

  const parameters = parseParameters(query);
  const hosts = parseHosts(hostList, parameters.host);
  const secret = decode(password);

  return {
    hosts,
    database: decode(database),
    username: decode(username),
    /** A function, so that no log shows it. */
    password: () => secret,
    ...parseTls(parameters, hosts),
    /** The session's name, shown in `pg_stat_activity`. */
    applicationName: parameters.application_name ?? "plant-store",
    /** The time limit for connecting to one host, in milliseconds. */
    connectTimeoutMs: parseTimeout(parameters.connect_timeout),
  };
}

/** User, password, hosts, database and parameters. */
const URI =
  /^(?:postgres(?:ql)?|citus):\/\/(?:([^:@/?#]+)(?::([^@/?#]*))?@)?([^@/?#]*)\/([^/?#]+)(?:\?([^#]*))?$/;

/** Returns the parts of a URL for the log, without secrets. */
export function describePostgresUrl({ hosts, database, username, sslmode }: PostgresUrl) {
  return { hosts: hosts.map(describeHost), database, username, sslmode };
}

/** Formats a server as `HOST:PORT`. */
export function describeHost({ host, port }: PostgresHost): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function decode(text: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(text);
  } catch {
    throw new RangeError("expected % to be followed by two hexadecimal digits; a % itself is %25");
  }
  if (/\p{Cc}/u.test(decoded)) throw new RangeError("expected no control character, such as %00");
  return decoded;
}

/**
 * Parses the hosts of a URL. As in libpq, the parameter `host` may name the directory of a socket instead.
 */
function parseHosts(list: string, directory: string | undefined): readonly PostgresHost[] {
  if (directory === undefined) return list.split(",").map(parseHost);

  const isAlone = list === "" || list === "localhost";
  if (isAlone && directory.startsWith("/")) return [{ host: directory, port: 5432 }];
  throw new RangeError(
    "expected the parameter host to be the directory of a Unix socket, without another host; write a network host as //HOST/DATABASE",
  );
}

function parseHost(text: string): PostgresHost {
  const [, bracketed, plain, port = "5432"] =
    /^(?:\[([\dA-Fa-f:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = bracketed ?? decode(plain ?? "");

  // The client puts the host into a URL, where a character that ends a host would hide the sslmode.
  const isHost = bracketed !== undefined || host.startsWith("/") || /^[\w.-]+$/.test(host);
  const number = Number(port);
  if (isHost && number >= 1 && number <= 65_535) return { host, port: number };

  throw new RangeError("expected hosts as HOST or HOST:PORT, separated by commas");
}

function parseParameters(query: string): UrlParameters {
  const parameters = new Map<string, string>();

  for (const pair of query.split("&").filter((text) => text !== "")) {
    const [name = "", ...value] = pair.split("=");
    if (!PARAMETERS.some((known) => known === name)) throw unknownParameter(name, query);
    if (parameters.has(name)) throw new RangeError(`expected the parameter "${name}" once`);
    parameters.set(name, decode(value.join("=")));
  }

  return Object.fromEntries(parameters);
}

/**
 * Returns the error for an unknown parameter. Does not quote the name if it may be part of a password: after
 * an unencoded `?` in a password, the rest looks like parameters, and an `@` follows.
 */
function unknownParameter(name: string, query: string): RangeError {
  const known = `there are ${PARAMETERS.join(", ")}`;
  if (/^\w{1,40}$/.test(name) && !query.includes("@")) {
    return new RangeError(`the parameter "${name}" is not known; ${known}`);
  }
  return new RangeError(
    `a parameter is not known; ${known}; special characters of the password must be percent-encoded, such as ? as %3F`,
  );
}

/** libpq's values of `sslmode`, except those that silently fall back to plaintext. */
const SSL_MODES = ["disable", "require", "verify-ca", "verify-full"] as const;

/** Parses the TLS parameters. libpq's default, `prefer`, may send plants and the password in plaintext. */
function parseTls(
  { sslmode: mode, sslrootcert, sslcert, sslkey }: UrlParameters,
  hosts: readonly PostgresHost[],
) {
  const sslmode = SSL_MODES.find((known) => known === mode);
  if (mode !== sslmode) throw new RangeError(`expected sslmode to be ${SSL_MODES.join(", ")}`);
  if ((sslcert === undefined) !== (sslkey === undefined))
    throw new RangeError("expected sslcert and sslkey together");

  const isSecure = sslmode !== undefined && sslmode !== "disable";
  if (!isSecure && (sslrootcert ?? sslcert) !== undefined)
    throw new RangeError("sslrootcert and sslcert need sslmode=require, verify-ca or verify-full");

  if (sslmode === undefined && !hosts.every(isLocal)) {
    throw new RangeError(
      "a host on a network needs sslmode: write ?sslmode=verify-full, or ?sslmode=disable to send all in plaintext",
    );
  }

  return {
    /** `undefined` if every host is local and the URL has no `sslmode`. */
    sslmode,
    /** The path of the trusted certificates, in PEM. @default those that the system trusts */
    sslrootcert,
    /** The paths of the client's own certificate and key, in PEM, if it has any. */
    sslcert,
    sslkey,
  };
}

function isLocal({ host }: PostgresHost): boolean {
  return (
    host.startsWith("/") || host === "localhost" || host === "::1" || /^127(?:\.\d+){3}$/.test(host)
  );
}

/** Parses `connect_timeout`, in whole seconds as in libpq. */
function parseTimeout(text = "2"): number {
  const seconds = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (seconds >= 1) return seconds * 1_000;
  throw new RangeError("expected connect_timeout to be 1 to 999 seconds");
}

/** Says how to run a command on this database. Leaves out the URL, which may contain a password. */
export function howToRun(command: string): string {
  return `run plant-store ${command} --database "$DATABASE_URL"`;
}
