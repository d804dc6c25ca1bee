import { withDeadline } from "../../deadline.ts";
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
  /** The server process behind this connection. */
  readonly backend: Backend;
  isOpen(): boolean;
  /** Closes it at once: what is in flight rejects, and may still run on the server. */
  close(): void;
}

/** A server process, told from a later one with the same number. */
export interface Backend {
  readonly pid: number;
  readonly startedAt: string;
}

/** What a connection is for. */
export interface ConnectionOptions {
  /** Whether it has to take writes. */
  readonly writable: boolean;
  /** How long all of it may take, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Makes what connects to the first server that can be used; the one that was used last is tried before the others, for
 * one that does not respond takes its time.
 */
export function connectorTo(url: PostgresUrl): (options: ConnectionOptions) => Promise<Connection> {
  let { hosts } = url;
  return async (options) => {
    const connection = await connectPostgres({ ...url, hosts }, options);
    hosts = [connection.host, ...url.hosts.filter((host) => host !== connection.host)];
    return connection;
  };
}

/**
 * Connects to the first server that can be used, and makes its session safe.
 *
 * @throws {PostgresFailure} `UNSAFE` if a server would break what a 200 promises, else `NO_SERVER`; the message names
 * each server and its reason.
 */
export async function connectPostgres(
  url: PostgresUrl,
  { writable, timeoutMs }: ConnectionOptions,
): Promise<Connection> {
  const deadline = performance.now() + timeoutMs;
  const reasons: string[] = [];
  for (const [index, host] of url.hosts.entries()) {
    // One that does not respond leaves the others their share.
    const limitMs = Math.min(url.connectTimeoutMs, (deadline - performance.now()) / (url.hosts.length - index));
    if (limitMs <= 0) break;
    try {
      return await connectTo(host, url, writable, limitMs);
    } catch (error) {
      if (!(error instanceof PostgresFailure)) throw error;
      if (error.code === "UNSAFE") throw new PostgresFailure("UNSAFE", `${describeHost(host)}: ${error.message}`);
      reasons.push(`${describeHost(host)}: ${error.message}`);
    }
  }
  throw new PostgresFailure("NO_SERVER", reasons.join("; ") || "there was no time to try");
}

/** A statement that was given up ends by itself after this long, in milliseconds, unless it is about to commit. */
const STATEMENT_TIMEOUT_MS = 30_000;

async function connectTo(
  host: PostgresHost,
  url: PostgresUrl,
  writable: boolean,
  limitMs: number,
): Promise<Connection> {
  let isOpen = true;
  const client = new Bun.SQL({ ...clientOptions(host, url), onclose: () => void (isOpen = false) });
  const close = () => {
    isOpen = false;
    void client.close({ timeout: 0 });
  };
  try {
    return await withDeadline(establish(), limitMs, () => {
      throw new PostgresFailure("DEADLINE");
    });
  } catch (error) {
    close();
    throw toFailure(error);
  }

  async function establish(): Promise<Connection> {
    // A reserved connection never turns into another one, whose session was not checked.
    const session = await client.reserve();
    const backend = await makeSafe(session, writable);
    return {
      query: (statement, parameters = []) => run(() => session.unsafe(statement, [...parameters])),
      script: (statements) => run(() => session.unsafe(statements).simple()),
      host,
      backend,
      isOpen: () => isOpen,
      close,
    };
  }
}

async function run<Result>(statement: () => Promise<Result>): Promise<Result> {
  try {
    return await statement();
  } catch (error) {
    throw toFailure(error);
  }
}

function clientOptions({ host, port }: PostgresHost, url: PostgresUrl): Bun.SQL.PostgresOrMySQLOptions {
  const { sslmode = "disable", sslrootcert, sslcert, sslkey } = url;
  const name = host.startsWith("/") ? "localhost" : describeHost({ host, port });
  const files = { ...(sslrootcert && { ca: Bun.file(sslrootcert) }) };
  const own = sslcert && sslkey ? { cert: Bun.file(sslcert), key: Bun.file(sslkey) } : {};
  const tls = { ...files, ...own };
  return {
    adapter: "postgres",
    // With a URL the environment's is not looked at; and what is given beside it wins over the environment.
    url: `postgres://${name}/?sslmode=${sslmode}`,
    ...(host.startsWith("/") && { path: host, port }),
    ...(Object.keys(tls).length > 0 && { tls }),
    database: url.database,
    username: url.username,
    password: url.password(),
    max: 1,
    connection: {
      application_name: "plant-store",
      statement_timeout: STATEMENT_TIMEOUT_MS,
      // The server must notice a dead connection, too.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
    },
  };
}

/** `true`: a server that does not know a setting gives NULL. The commit's mode is set so that no reload changes it. */
const SESSION = `SELECT pg_backend_pid() AS pid,
  (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS started,
  current_setting('fsync', true) AS fsync,
  current_setting('full_page_writes', true) AS full_page_writes,
  set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit', true) END, false) AS synchronous_commit,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  current_setting('statement_timeout', true) AS statement_timeout`;

interface Session {
  readonly pid: number;
  readonly started: string | null;
  readonly fsync: string | null;
  readonly full_page_writes: string | null;
  readonly synchronous_commit: string | null;
  readonly read_only: string | null;
  readonly encoding: string | null;
  readonly statement_timeout: string | null;
}

/** Reads back what a 200 stands on; what must not be, and cannot be changed from here, is refused. */
async function makeSafe(session: Bun.ReservedSQL, writable: boolean): Promise<Backend> {
  const [found] = (await session.unsafe(SESSION)) as [Session];
  const refuse = (reason: string) => {
    throw new PostgresFailure("UNSAFE", reason);
  };
  if (found.encoding !== null && found.encoding !== "UTF8") refuse(`its encoding is ${found.encoding}, not UTF8`);
  if (found.statement_timeout !== `${STATEMENT_TIMEOUT_MS / 1_000}s`) {
    refuse("a pooler in between drops the session's settings: connect to PostgreSQL itself");
  }
  if (writable && found.read_only === "on") throw new PostgresFailure("25006");
  for (const setting of ["fsync", "full_page_writes", "synchronous_commit"] as const) {
    if (writable && found[setting] === "off") refuse(`${setting} is off, so it may lose what it has acknowledged`);
  }
  return { pid: found.pid, startedAt: found.started ?? "" };
}
