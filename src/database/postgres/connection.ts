import { withDeadline } from "../../async/timers.ts";
import { PostgresFailure, toFailure } from "./errors.ts";
import { NONCE, SESSION_SETTINGS, verifySession } from "./session.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** A statement's parameter. Arrays are passed as text, which keeps them exact. */
export type Parameter = string | number | Uint8Array | null;

/** One connection to one server. Its methods reject with a {@linkcode PostgresFailure}. */
export interface Connection {
  /** Runs a statement. By default, the session prepares it once. */
  query<Row>(statement: string, parameters?: readonly Parameter[]): Promise<readonly Row[]>;
  /** Runs statements without parameters, as one transaction. */
  script(statements: string): Promise<void>;
  /** Begins `COPY … FROM STDIN`. The connection runs nothing else until the copy ends. */
  copyFrom(statement: string): CopyFrom;
  readonly host: PostgresHost;
  isOpen(): boolean;
  /** When the server last replied, by `performance.now()`. */
  repliedAt(): number;
  /** Closes it at once. Statements in flight reject, and may still run on the server. */
  close(): void;
}

/** A `COPY` in progress. */
interface CopyFrom {
  /** Sends lines. Waits while the send buffer is full. */
  write(lines: string): Promise<void>;
  /** Ends the copy. Resolves with the number of rows that the server stored. */
  end(): Promise<number>;
}

/** How to connect. */
export interface ConnectionOptions {
  /** The `statement_timeout` of the session, in milliseconds. @default {STATEMENT_TIMEOUT_MS} */
  readonly statementTimeoutMs?: number | undefined;
  /**
   * Whether the session prepares each statement. Statements that differ each time would fill the server's
   * memory.
   *
   * @default {true}
   */
  readonly prepares?: boolean | undefined;
  /** Whether to accept a read-only server, such as a standby. @default {false} */
  readonly acceptsStandby?: boolean | undefined;
  /** Verifies the server. @default accepts all */
  readonly verify?: ((connection: Connection) => Promise<void>) | undefined;
  /** The `search_path` of the session. @default the role's */
  readonly searchPath?: string | undefined;
}

/** The `statement_timeout`, in milliseconds. It does not apply to the commit itself. */
export const STATEMENT_TIMEOUT_MS = 30_000;

/**
 * The `lock_timeout`, in milliseconds, also for a row of another transaction. After it, the statement is
 * repeated until its deadline, so that none is left waiting on the server. Another server's commit takes
 * less. A longer timeout would use up the time of the other plants in the batch.
 */
export const LOCK_TIMEOUT_MS = 250;

/**
 * Connects to a server, and verifies the session, within the URL's time limit.
 *
 * @throws {PostgresFailure} If the server cannot be used. The message says why.
 */
export async function connectTo(
  host: PostgresHost,
  url: PostgresUrl,
  options: ConnectionOptions = {},
): Promise<Connection> {
  const {
    statementTimeoutMs = STATEMENT_TIMEOUT_MS,
    prepares = true,
    acceptsStandby = false,
    verify,
    searchPath,
  } = options;
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
    throw toFailure(error);
  }

  async function establish(opened: Bun.SQL): Promise<Connection> {
    // Reserve the connection, because otherwise the client would silently reconnect with an unverified
    // session.
    const reserved = await opened.reserve();
    await verifySession(reserved, nonce, acceptsStandby);

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
      copyFrom(statement) {
        const query = reserved.unsafe(statement);
        const writer = query.writable().getWriter();
        return {
          write: (lines) => run(() => writer.write(lines)),
          end: () => run(() => writer.close().then(async () => (await query).count)),
        };
      },
      host,
      isOpen: () => isOpen,
      repliedAt: () => repliedAt,
      close,
    };

    await verify?.(connection);
    return connection;
  }
}

/** Returns the options of Bun's client. Sets all of them, to override libpq's environment variables. */
function clientOptions(
  { host, port }: PostgresHost,
  url: PostgresUrl,
  session: Readonly<Record<string, string | number>>,
): Bun.SQL.PostgresOrMySQLOptions {
  const { sslmode = "disable", sslrootcert, sslcert, sslkey } = url;
  const isSocket = host.startsWith("/");
  const name = isSocket ? "localhost" : describeHost({ host, port });

  // As in libpq, `require` with a root certificate means `verify-ca`.
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

      // These let the server close the session of a dead client. While a reply is unacknowledged, only
      // tcp_user_timeout applies.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
      tcp_user_timeout: 60_000,
    },
  };
}
