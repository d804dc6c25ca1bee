import { withDeadline } from "../../deadline.ts";
import { PostgresFailure, toFailure } from "./errors.ts";
import { type Backend, makeSafe, NONCE, SESSION_SETTINGS } from "./session.ts";
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
  /** Whether it may lack what was acknowledged last; looked at only where it is to read. */
  readonly isStandby: boolean;
  /** The server process behind this connection. */
  readonly backend: Backend;
  isOpen(): boolean;
  /** Closes it at once: what is in flight rejects, and may still run on the server. */
  close(): void;
}

/** What a connection is for. */
export interface ConnectionOptions {
  /** Whether it has to take writes. Where not, a standby is used only if no other server can be. */
  readonly writable: boolean;
  /** How long all of it may take, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * A statement that was given up ends by itself after this long, in milliseconds, unless it is about to commit.
   * @default {30_000}
   */
  readonly statementTimeoutMs?: number;
  /** Looks at what the connection finds there, and rejects where it cannot be used. @default accepts it */
  readonly verify?: (connection: Pick<Connection, "query">) => Promise<void>;
}

/**
 * Makes what connects to the first server that can be used; the one that was used last is tried before the others, for
 * one that does not respond takes its time.
 *
 * @param onWarning Is told of the first standby that is read from.
 */
export function connectorTo(
  url: PostgresUrl,
  onWarning: (message: string) => void = () => {},
): (options: ConnectionOptions) => Promise<Connection> {
  let { hosts } = url;
  let hasWarned = false;
  return async (options) => {
    const connection = await connectPostgres({ ...url, hosts }, options);
    hosts = [connection.host, ...url.hosts.filter((host) => host !== connection.host)];
    if (connection.isStandby && !hasWarned) onWarning(`${describeHost(connection.host)} ${LAGS}`);
    hasWarned ||= connection.isStandby;
    return connection;
  };
}

const LAGS = "is a standby, and no other server can be used: it may lack the newest plants and tokens";

/**
 * Connects to the first server that can be used, and makes its session safe. One that would break what a 200 promises
 * is passed by as one that is down.
 *
 * @throws {PostgresFailure} `NO_SERVER`, or `UNSAFE` if all of them would break it; the message names each server and
 * its reason.
 */
export async function connectPostgres(url: PostgresUrl, options: ConnectionOptions): Promise<Connection> {
  const deadline = performance.now() + options.timeoutMs;
  const failures: PostgresFailure[] = [];
  let standby: Connection | undefined;
  for (const [index, host] of url.hosts.entries()) {
    // One that does not respond leaves the others their share.
    const limitMs = Math.min(url.connectTimeoutMs, (deadline - performance.now()) / (url.hosts.length - index));
    if (limitMs <= 0) break;
    try {
      const connection = await connectTo(host, url, { ...options, timeoutMs: limitMs });
      if (!connection.isStandby) {
        standby?.close();
        return connection;
      }
      // Another host may be the primary, which has everything.
      if (standby === undefined) standby = connection;
      else connection.close();
    } catch (error) {
      if (!(error instanceof PostgresFailure)) {
        standby?.close();
        throw error;
      }
      failures.push(new PostgresFailure(error.code, `${describeHost(host)}: ${error.message}`));
    }
  }
  if (standby !== undefined) return standby;
  // Another server may be back in a moment; settings stay as they are.
  const isUnsafe = failures.length === url.hosts.length && failures.every(({ code }) => code === "UNSAFE");
  const reasons = failures.map(({ message }) => message).join("; ");
  throw new PostgresFailure(isUnsafe ? "UNSAFE" : "NO_SERVER", reasons || "there was no time to try");
}

/**
 * How long a statement waits for a lock, in milliseconds, a row's of another transaction too: it is repeated then, as
 * long as there is time, and nothing is left behind on the server that waits on. A commit of another server is faster,
 * and the other plants of a batch have most of their time left.
 */
export const LOCK_TIMEOUT_MS = 250;

async function connectTo(
  host: PostgresHost,
  url: PostgresUrl,
  { writable, timeoutMs, statementTimeoutMs = 30_000, verify }: ConnectionOptions,
): Promise<Connection> {
  let isOpen = true;
  const nonce = crypto.randomUUID();
  const session = { [NONCE]: nonce, statement_timeout: statementTimeoutMs };
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
    throw toFailure(error);
  }

  async function establish(opened: Bun.SQL): Promise<Connection> {
    // A reserved connection never turns into another one, whose session was not checked.
    const reserved = await opened.reserve();
    const backend = await makeSafe(reserved, { writable, nonce });
    const isStandby = !writable && (await isInRecovery(reserved));
    if (isStandby && !url.readsStandby) throw new PostgresFailure("25006");
    const query: Connection["query"] = (statement, parameters = []) =>
      run(() => reserved.unsafe(statement, [...parameters]));
    await verify?.({ query });
    return {
      query,
      script: (statements) => run(() => reserved.unsafe(statements).simple()),
      host,
      isStandby,
      backend,
      isOpen: () => isOpen,
      close,
    };
  }
}

async function isInRecovery(session: Bun.ReservedSQL): Promise<boolean> {
  const [found] = (await session.unsafe("SELECT pg_is_in_recovery() AS is_standby")) as [{ is_standby: boolean }];
  return found.is_standby;
}

async function run<Result>(statement: () => Promise<Result>): Promise<Result> {
  try {
    return await statement();
  } catch (error) {
    throw toFailure(error);
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
  // Said here, NODE_TLS_REJECT_UNAUTHORIZED does not change it.
  const verified = sslmode.startsWith("verify-") || sslrootcert ? { rejectUnauthorized: true } : {};
  const tls = { ...files, ...own, ...verified };
  return {
    adapter: "postgres",
    // With a URL the environment's is not looked at; and what is given beside it wins over PGDATABASE and the like.
    url: `postgres://${name}/?sslmode=${sslmode}`,
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
      application_name: "plant-store",
      // None: PGOPTIONS would be added.
      options: " ",
      lock_timeout: LOCK_TIMEOUT_MS,
      ...session,
      ...SESSION_SETTINGS,
      // The server must notice a dead connection, too.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
    },
  };
}
