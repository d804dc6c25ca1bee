import { createPrivateKey, X509Certificate } from "node:crypto";

import { withDeadline } from "../../async/timers.ts";
import { codeOf, PostgresFailure, toFailure } from "./errors.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** A statement's parameter. Arrays are passed as text, which keeps them exact. */
export type Parameter = string | number | Uint8Array | null;

/** One connection to one server. Its methods reject with a {@linkcode PostgresFailure}. */
export interface Connection {
  /** Runs a statement. It is prepared once for the session, unless the options say otherwise. */
  query<Row>(statement: string, parameters?: readonly Parameter[]): Promise<readonly Row[]>;
  /** Runs statements without parameters, as one transaction. */
  script(statements: string): Promise<void>;
  readonly host: PostgresHost;
  /** The names of the extensions that the database has. */
  readonly extensions: readonly string[];
  isOpen(): boolean;
  /** When the server last replied, by `performance.now()`. */
  repliedAt(): number;
  /** Closes it at once. Statements in flight reject, and may still run on the server. */
  close(): void;
}

/** How to connect. */
export interface ConnectionOptions {
  /** When the server ends a statement, in milliseconds. @default {STATEMENT_TIMEOUT_MS} */
  readonly statementTimeoutMs?: number | undefined;
  /**
   * Whether the server keeps each statement for the session. Statements that differ each time would
   * fill its memory.
   *
   * @default {true}
   */
  readonly prepares?: boolean | undefined;
  /**
   * Gives the session its `search_path`, and verifies the tables there. @default uses the role's,
   * and accepts all
   */
  readonly tables?:
    | {
        searchPath(): string | undefined;
        verify(connection: Connection): Promise<void>;
      }
    | undefined;
}

/** When the server ends a statement, in milliseconds, unless it is about to commit. */
export const STATEMENT_TIMEOUT_MS = 30_000;

/**
 * How long a statement waits for a lock, in milliseconds, even for another transaction's row. Then
 * it is repeated until its deadline, so no statement is left waiting on the server. Another
 * server's commit takes less, and the other plants of the batch have most of their time left.
 */
export const LOCK_TIMEOUT_MS = 250;

/**
 * Connects to one server, and verifies the session, within the URL's time limit.
 *
 * @throws {PostgresFailure} If it cannot be used. The message says why.
 */
export async function connectTo(
  host: PostgresHost,
  url: PostgresUrl,
  { statementTimeoutMs = STATEMENT_TIMEOUT_MS, prepares = true, tables }: ConnectionOptions = {},
): Promise<Connection> {
  let isOpen = true;
  const nonce = crypto.randomUUID();

  const schema = tables?.searchPath();
  const session = {
    [NONCE]: nonce,
    statement_timeout: statementTimeoutMs,
    ...(schema !== undefined && { search_path: schema }),
  };

  let client: Bun.SQL | undefined;
  const close = () => {
    isOpen = false;
    void client?.close({ timeout: 0 });
  };

  try {
    client = new Bun.SQL({
      ...clientOptions(host, url, session),
      prepare: prepares,
      onclose: () => void (isOpen = false),
    });
    return await withDeadline(establish(client), url.connectTimeoutMs, () => {
      throw new PostgresFailure("DEADLINE");
    });
  } catch (error) {
    close();

    const failure = toFailure(error);
    const isOfTls = codeOf(failure).startsWith("ERR_BORINGSSL");
    throw isOfTls ? ((await keyFailure(url)) ?? failure) : failure;
  }

  async function establish(opened: Bun.SQL): Promise<Connection> {
    // Without reserving it, the client would reconnect by itself, to a session that was not
    // verified.
    const reserved = await opened.reserve();
    const extensions = await verifySession(reserved, nonce);

    let repliedAt = performance.now();
    const run = async <Result>(statement: () => Promise<Result>): Promise<Result> => {
      try {
        return await statement();
      } catch (error) {
        throw toFailure(error);
      } finally {
        repliedAt = performance.now();
      }
    };

    const connection: Connection = {
      query: (statement, parameters = []) => run(() => reserved.unsafe(statement, [...parameters])),
      script: (statements) => run(() => reserved.unsafe(statements).simple()),
      host,
      extensions,
      isOpen: () => isOpen,
      repliedAt: () => repliedAt,
      close,
    };

    await tables?.verify(connection);
    return connection;
  }
}

/** The fault of the client's own key: the TLS library does not name it. */
async function keyFailure({ sslcert, sslkey }: PostgresUrl): Promise<PostgresFailure | undefined> {
  if (sslcert === undefined || sslkey === undefined) return undefined;

  try {
    const [certificate, key] = await Promise.all([
      Bun.file(sslcert).text(),
      Bun.file(sslkey).text(),
    ]);
    if (/\bENCRYPTED\b/.test(key)) return new PostgresFailure("KEY_ENCRYPTED");

    const fits = new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key));
    return fits ? undefined : new PostgresFailure("KEY_MISMATCH");
  } catch {
    // One of the files is not a certificate or a key.
    return undefined;
  }
}

/** The options of Bun's client: all of them, so that no environment variable of libpq's sets one. */
function clientOptions(
  { host, port }: PostgresHost,
  url: PostgresUrl,
  session: Readonly<Record<string, string | number>>,
): Bun.SQL.PostgresOrMySQLOptions {
  const { sslmode = "disable", sslrootcert, sslcert, sslkey } = url;
  const isSocket = host.startsWith("/");
  const name = isSocket ? "localhost" : describeHost({ host, port });

  // As for libpq, `require` with certificates to trust is `verify-ca`.
  const mode = sslmode === "require" && sslrootcert ? "verify-ca" : sslmode;
  const tls = {
    ...(sslrootcert && { ca: Bun.file(sslrootcert) }),
    ...(sslcert && sslkey && { cert: Bun.file(sslcert), key: Bun.file(sslkey) }),
    // Overrides NODE_TLS_REJECT_UNAUTHORIZED.
    ...(mode.startsWith("verify-") && { rejectUnauthorized: true }),
  };

  return {
    adapter: "postgres",

    // A URL overrides DATABASE_URL, and the options beside it override PGDATABASE and the like.
    url: `postgres://${name}/?sslmode=${mode}`,
    ...(isSocket && { path: host, port }),
    ...(Object.keys(tls).length > 0 && { tls }),

    database: url.database,
    username: url.username,
    // A function, because PGPASSWORD would replace an empty string.
    password: url.password,

    max: 1,
    connectionTimeout: url.connectTimeoutMs / 1_000,
    channelBinding: "disable",

    connection: {
      application_name: url.applicationName,
      // Overrides PGOPTIONS.
      options: " ",
      lock_timeout: LOCK_TIMEOUT_MS,
      ...session,
      ...SESSION_SETTINGS,

      // The server closes the session of a dead client. While a reply is unacknowledged, only
      // tcp_user_timeout applies.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
      tcp_user_timeout: 60_000,
    },
  };
}

/**
 * A setting of our own. Only this connection's server process returns it: a pooler drops it, or
 * returns another client's.
 */
const NONCE = "plant_store.nonce";

/**
 * Settings that change what statements store and return, or how the client reads it. Given when a
 * connection starts, they override those of the role, the database and `postgresql.conf`.
 */
const SESSION_SETTINGS = {
  // "off" stores an absent tag as the text 'NULL'.
  array_nulls: "on",
  // The only one that the client can read.
  bytea_output: "hex",
  // "on" silently omits the rows that a policy hides. With "off" the statement fails, as in
  // pg_dump.
  row_security: "off",
} as const;

/**
 * Reads back the settings that a 200 depends on, and refuses those that the session cannot change.
 *
 * @returns The names of the extensions.
 * @throws {PostgresFailure} `UNSAFE`, or 25006 if the session is read-only, as on a standby.
 */
async function verifySession(session: Bun.ReservedSQL, nonce: string): Promise<readonly string[]> {
  const [found] = (await session.unsafe(SESSION)) as [Session];

  const engine = ENGINES.find(([mark]) => found.version.includes(mark))?.[1];
  if (engine !== undefined) refuse(`it is ${engine}, which is untested: use PostgreSQL itself`);

  if (found.encoding !== null && found.encoding !== "UTF8")
    refuse(`its encoding is ${found.encoding}, not UTF8`);
  if (found.nonce !== nonce)
    refuse("a pooler in between drops session settings: connect to PostgreSQL itself");

  for (const [name, value] of Object.entries(SESSION_SETTINGS)) {
    const other = found[name as keyof typeof SESSION_SETTINGS] ?? value;
    if (other !== value) refuse(`${name} is ${other} despite the session's settings, not ${value}`);
  }

  if (found.read_only === "on") throw new PostgresFailure("25006");
  requireDurable(found);
  return found.extensions?.split(",") ?? [];
}

/** Marks in `version()` of engines that only speak PostgreSQL's protocol. */
const ENGINES = [
  ["CockroachDB", "CockroachDB"],
  ["-YB-", "YugabyteDB"],
] as const;

/**
 * With `data_sync_retry`, a failed fsync is retried, and may succeed without having written
 * anything.
 */
const UNSAFE_SETTINGS = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  data_sync_retry: "on",
} as const;

/**
 * The settings that decide whether a commit is durable. Null if the server does not know the
 * setting.
 */
export type Durability = Readonly<Record<keyof typeof UNSAFE_SETTINGS, string | null>>;

/** The columns of {@linkcode Durability}. */
export const DURABILITY = settingColumns(UNSAFE_SETTINGS);

/** Reads each of these settings; null if the server does not know it. */
function settingColumns(settings: object): string {
  return Object.keys(settings)
    .map((name) => `current_setting('${name}', true) AS ${name}`)
    .join(", ");
}

/** @throws {PostgresFailure} `UNSAFE`, if the server may lose acknowledged plants. */
export function requireDurable(found: Durability): void {
  for (const [setting, unsafe] of Object.entries(UNSAFE_SETTINGS)) {
    const isUnsafe = found[setting as keyof Durability] === unsafe;
    if (isUnsafe) refuse(`${setting} is ${unsafe}, so it may lose acknowledged plants`);
  }
}

function refuse(reason: string): never {
  throw new PostgresFailure("UNSAFE", reason);
}

/**
 * Sets `synchronous_commit` for the session, so that no reload changes it, and reads everything
 * that {@linkcode verifySession} needs. `on` waits for the disk here and on a synchronous standby;
 * `remote_apply`, if it is set already, waits for more.
 */
const SESSION = `SELECT ${DURABILITY},
  version() AS version,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  ${settingColumns(SESSION_SETTINGS)},
  current_setting('${NONCE}', true) AS nonce,
  (SELECT string_agg(extname, ',') FROM pg_catalog.pg_extension) AS extensions
  FROM (SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)) AS changed`;

/** The row of {@linkcode SESSION}. */
type Session = Readonly<Record<SettingName, string | null> & { version: string }>;

type SettingName =
  | keyof Durability
  | keyof typeof SESSION_SETTINGS
  | "read_only"
  | "encoding"
  | "nonce"
  | "extensions";
