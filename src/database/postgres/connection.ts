import { createPrivateKey, X509Certificate } from "node:crypto";
import { withDeadline } from "../../async/deadline.ts";
import { PostgresFailure, toFailure } from "./errors.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** A parameter: texts, and arrays as texts, are exact in every client. */
export type Parameter = string | number | Uint8Array | null;

/** One connection to one server. Whatever it rejects with is a {@linkcode PostgresFailure}. */
export interface Connection {
  /** Runs a prepared statement. */
  query<Row>(statement: string, parameters?: readonly Parameter[]): Promise<readonly Row[]>;
  /** Runs statements without parameters; several are one transaction. */
  script(statements: string): Promise<void>;
  readonly host: PostgresHost;
  /** Whether it may lack what was acknowledged last; true only on connections for reading. */
  readonly isStandby: boolean;
  isOpen(): boolean;
  /** When the server last replied, as `performance.now()` has it. */
  repliedAt(): number;
  /** Closes it at once: what is in flight rejects, and may still run on the server. */
  close(): void;
}

/** What a connection is for. */
export interface ConnectionOptions {
  /** Whether it has to take writes. Otherwise a standby is used only if no other server is available. */
  readonly writable: boolean;
  /** How long all of it may take, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * A statement that was given up ends by itself after this long, in milliseconds, unless it is about to commit.
   * @default {30_000}
   */
  readonly statementTimeoutMs?: number | undefined;
  /** Which schemas to look for tables in. @default as the role or the database has it */
  readonly searchPath?: string | undefined;
  /** Looks at what the connection finds there, and rejects if it cannot be used. @default accepts it */
  readonly verify?: (connection: Connection) => Promise<void>;
}

/**
 * How long a statement waits for a lock, in milliseconds, a row's of another transaction too: it is repeated then, as
 * long as there is time, and nothing is left behind on the server that waits on. A commit of another server is faster,
 * and the other plants of a batch have most of their time left.
 */
export const LOCK_TIMEOUT_MS = 250;

/**
 * Connects to one server, and makes the session safe.
 *
 * @throws {PostgresFailure} If it cannot be used; the message says why.
 */
export async function connectTo(
  host: PostgresHost,
  url: PostgresUrl,
  { writable, timeoutMs, statementTimeoutMs = 30_000, searchPath, verify }: ConnectionOptions,
): Promise<Connection> {
  let isOpen = true;
  const nonce = crypto.randomUUID();
  const session = {
    [NONCE]: nonce,
    statement_timeout: statementTimeoutMs,
    ...(searchPath !== undefined && { search_path: searchPath }),
  };
  let client: Bun.SQL | undefined;
  const close = () => {
    isOpen = false;
    void client?.close({ timeout: 0 });
  };
  try {
    client = new Bun.SQL({ ...clientOptions(host, url, session), onclose: () => void (isOpen = false) });
    return await withDeadline(establish(client), timeoutMs, () => {
      throw new PostgresFailure("DEADLINE");
    });
  } catch (error) {
    close();
    const failure = toFailure(error);
    const isKey = failure instanceof PostgresFailure && failure.code.startsWith("ERR_BORINGSSL");
    throw (isKey ? await keyFailure(url) : undefined) ?? failure;
  }

  async function establish(opened: Bun.SQL): Promise<Connection> {
    // A reserved connection never turns into another one, whose session was not checked.
    const reserved = await opened.reserve();
    const isStandby = await verifySession(reserved, { writable, nonce });
    if (isStandby && !url.readsStandby) throw new PostgresFailure("25006");
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
      isStandby,
      isOpen: () => isOpen,
      repliedAt: () => repliedAt,
      close,
    };
    await verify?.(connection);
    return connection;
  }
}

/** What is wrong with the client's own key, if it is one: the TLS library only says that it cannot use it. */
async function keyFailure({ sslcert, sslkey }: PostgresUrl): Promise<PostgresFailure | undefined> {
  if (sslcert === undefined || sslkey === undefined) return undefined;
  try {
    const [certificate, key] = await Promise.all([Bun.file(sslcert).text(), Bun.file(sslkey).text()]);
    if (/\bENCRYPTED\b/.test(key)) return new PostgresFailure("KEY_ENCRYPTED");
    const fits = new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key));
    return fits ? undefined : new PostgresFailure("KEY_MISMATCH");
  } catch {
    // Neither is a certificate or a key.
    return undefined;
  }
}

function clientOptions(
  { host, port }: PostgresHost,
  url: PostgresUrl,
  session: Readonly<Record<string, string | number>>,
): Bun.SQL.PostgresOrMySQLOptions {
  const { sslmode = "disable", sslrootcert, sslcert, sslkey } = url;
  const name = host.startsWith("/") ? "localhost" : describeHost({ host, port });
  const files = { ...(sslrootcert && { ca: Bun.file(sslrootcert) }) };
  const own = sslcert && sslkey ? { cert: Bun.file(sslcert), key: Bun.file(sslkey) } : {};
  // As for libpq, `require` with certificates to trust is `verify-ca`.
  const mode = sslmode === "require" && sslrootcert ? "verify-ca" : sslmode;
  // Said here, NODE_TLS_REJECT_UNAUTHORIZED does not change it.
  const verified = mode.startsWith("verify-") ? { rejectUnauthorized: true } : {};
  const tls = { ...files, ...own, ...verified };
  return {
    adapter: "postgres",
    // With a URL the environment's is not looked at; and what is given beside it wins over PGDATABASE and the like.
    url: `postgres://${name}/?sslmode=${mode}`,
    ...(host.startsWith("/") && { path: host, port }),
    ...(Object.keys(tls).length > 0 && { tls }),
    database: url.database,
    username: url.username,
    // A function: an empty text would be replaced by PGPASSWORD.
    password: url.password,
    max: 1,
    connectionTimeout: url.connectTimeoutMs / 1_000,
    channelBinding: "disable",
    connection: {
      application_name: url.applicationName,
      // None: PGOPTIONS would be added.
      options: " ",
      lock_timeout: LOCK_TIMEOUT_MS,
      ...session,
      ...SESSION_SETTINGS,
      // The server must notice a dead connection as well. While a reply is not acknowledged, only tcp_user_timeout counts.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
      tcp_user_timeout: 60_000,
    },
  };
}

/** What a session has to be. */
interface SessionRequirements {
  /** Whether it has to take writes. */
  readonly writable: boolean;
  /** What {@linkcode NONCE} was set to when it was opened. */
  readonly nonce: string;
}

/**
 * A setting of our own. Only the server process of this very connection gives it back: a pooler keeps it for itself, or
 * hands on another client's.
 */
const NONCE = "plant_store.nonce";

/**
 * What a role, a database or `postgresql.conf` may have otherwise, and would change what statements store or return, or
 * how the client reads it. Given when a connection starts, these win over all of them.
 */
const SESSION_SETTINGS = {
  // "off" stores an absent tag as the text 'NULL'.
  array_nulls: "on",
  // The client reads no other.
  bytea_output: "hex",
  // "on" puts the names of types into quotes, by which a table's columns are known.
  quote_all_identifiers: "off",
  // "on" leaves out the rows that a policy hides, without a word; off, the statement fails, as pg_dump's does.
  row_security: "off",
} as const;

/**
 * Reads back what a 200 stands on; what must not be, and cannot be changed from here, is refused.
 *
 * @returns Whether the server is a standby.
 * @throws {PostgresFailure} `UNSAFE`, or 25006 if the session has to take writes and is read-only.
 */
async function verifySession(session: Bun.ReservedSQL, { writable, nonce }: SessionRequirements): Promise<boolean> {
  const [found] = (await session.unsafe(SESSION)) as [Session];
  if (found.encoding !== null && found.encoding !== "UTF8") refuse(`its encoding is ${found.encoding}, not UTF8`);
  if (found.nonce !== nonce) {
    refuse("a pooler in between drops the session's settings: connect to PostgreSQL itself");
  }
  for (const [name, value] of Object.entries(SESSION_SETTINGS)) {
    const other = found[name as keyof typeof SESSION_SETTINGS] ?? value;
    if (other !== value) refuse(`${name} is ${other} in spite of the session, not ${value}`);
  }
  if (writable && found.read_only === "on") throw new PostgresFailure("25006");
  if (writable) requireDurable(found);
  return found.is_standby;
}

/** With `data_sync_retry` on an fsync that failed is tried again, and may succeed without having written anything. */
const UNSAFE_SETTINGS = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  data_sync_retry: "on",
} as const;

/** What decides whether a commit is durable, as a server has it. One that does not know a setting gives null. */
export type Durability = Readonly<Record<keyof typeof UNSAFE_SETTINGS, string | null>>;

/** The columns of {@linkcode Durability}. `true`: a setting that the server does not know is null. */
export const DURABILITY = Object.keys(UNSAFE_SETTINGS)
  .map((name) => `current_setting('${name}', true) AS ${name}`)
  .join(", ");

/** @throws {PostgresFailure} `UNSAFE`, if the server may lose what it has acknowledged. */
export function requireDurable(found: Durability): void {
  for (const [setting, unsafe] of Object.entries(UNSAFE_SETTINGS)) {
    if (found[setting as keyof Durability] === unsafe) {
      refuse(`${setting} is ${unsafe}, so it may lose what it has acknowledged`);
    }
  }
}

function refuse(reason: string): never {
  throw new PostgresFailure("UNSAFE", reason);
}

/**
 * The commit's mode is set so that no reload changes it: to `on`, which waits for the disk here and on a synchronous
 * standby, or `remote_apply`, which waits for more.
 */
const SESSION = `SELECT ${DURABILITY}, pg_is_in_recovery() AS is_standby,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  current_setting('array_nulls', true) AS array_nulls,
  current_setting('bytea_output', true) AS bytea_output,
  current_setting('quote_all_identifiers', true) AS quote_all_identifiers,
  current_setting('row_security', true) AS row_security,
  current_setting('${NONCE}', true) AS nonce
  FROM (SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)) AS changed`;

interface Session extends Durability, Readonly<Record<keyof typeof SESSION_SETTINGS, string | null>> {
  readonly is_standby: boolean;
  readonly read_only: string | null;
  readonly encoding: string | null;
  readonly nonce: string | null;
}
