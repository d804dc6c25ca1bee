import { withDeadline } from "../../async/timers.ts";
import { PostgresFailure, toFailure } from "./errors.ts";
import { NONCE, SESSION_SETTINGS, verifySession } from "./session.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** A statement's parameter. Arrays are passed as text, which keeps them exact. */
export type Parameter = string | number | Uint8Array | null;

/** One connection to one server. Its methods reject with a {@linkcode PostgresFailure}. */
export interface Connection {
  /** Runs a statement. It is prepared once for the session, unless the options say otherwise. */
  query<Row>(statement: string, parameters?: readonly Parameter[]): Promise<readonly Row[]>;
  /** Runs statements without parameters, as one transaction. */
  script(statements: string): Promise<void>;
  /** Runs `COPY … FROM STDIN`. The connection runs nothing else until its end. */
  copyFrom(statement: string): CopyFrom;
  readonly host: PostgresHost;
  isOpen(): boolean;
  /** When the server last replied, by `performance.now()`. */
  repliedAt(): number;
  /** Closes it at once. Statements in flight reject, and may still run on the server. */
  close(): void;
}

/** Sends the rows of a table. */
interface CopyFrom {
  /** Sends lines, and waits while too many are on their way. */
  write(lines: string): Promise<void>;
  /** Resolves with how many rows the server stored. */
  end(): Promise<number>;
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
  /** Whether a server that is read-only, as a standby is, will do. @default {false} */
  readonly acceptsStandby?: boolean | undefined;
  /** Verifies the server. @default accepts all */
  readonly verify?: ((connection: Connection) => Promise<void>) | undefined;
  /** The `search_path` of the session. @default the role's */
  readonly searchPath?: string | undefined;
}

/** When the server ends a statement, in milliseconds, unless it is about to commit. */
export const STATEMENT_TIMEOUT_MS = 30_000;

/**
 * How long a statement waits for a lock, in milliseconds, even for another transaction's row. Then
 * it is repeated until its deadline, so no statement is left waiting on the server. The commit of
 * another server takes less; more would use up the time of the other plants in the batch.
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
  options: ConnectionOptions = {},
): Promise<Connection> {
  const {
    statementTimeoutMs = STATEMENT_TIMEOUT_MS,
    prepares = true,
    verify,
    searchPath,
  } = options;
  const { acceptsStandby = false } = options;
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
    // Without reserving it, the client would reconnect by itself, to a session that was not
    // verified.
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
