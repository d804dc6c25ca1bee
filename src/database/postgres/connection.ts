import { createPrivateKey, X509Certificate } from "node:crypto";
import { withDeadline } from "../../async/deadline.ts";
import { PostgresFailure, toFailure } from "./errors.ts";
import { NONCE, SESSION_SETTINGS, verifySession } from "./session.ts";
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

/** An array of integers as PostgreSQL reads it. */
export function bigintArray(values: readonly bigint[]): string {
  return `{${values.join(",")}}`;
}

/**
 * An array of texts as PostgreSQL reads it; what is absent is NULL. Every text comes out as it was, empty ones and "NULL"
 * too (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
 */
export function textArray(values: readonly (string | undefined)[]): string {
  return `{${values.map((value) => (value === undefined ? "NULL" : quoted(value))).join(",")}}`;
}

function quoted(text: string): string {
  if (!/["\\]/.test(text)) return `"${text}"`;
  // JSON escapes the same two characters, and also control characters, which PostgreSQL takes as they are.
  return /\p{Cc}/u.test(text) ? `"${escaped(text)}"` : JSON.stringify(text);
}

/** By UTF-16 code units: if most of them are escaped, `replaceAll` takes up to ten times as long. */
function escaped(text: string): string {
  const units = new Uint16Array(2 * text.length);
  let length = 0;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit === QUOTE || unit === BACKSLASH) units[length++] = BACKSLASH;
    units[length++] = unit;
  }
  return Buffer.from(units.buffer, 0, 2 * length).toString("utf16le");
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
