import { backoffMs, pause, withDeadline } from "../../async/timers.ts";
import { reasonOf } from "../../errors.ts";
import { type Connection, type ConnectionOptions, connectTo } from "./connection.ts";
import { codeOf, PostgresFailure } from "./errors.ts";
import { newestTimelines } from "./timelines.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** Options of {@linkcode failover}. */
interface FailoverOptions {
  /**
   * Reads the URL again after a server has rejected the user or the password: a rotation may have
   * replaced them. Nothing else is taken from it. Certificates are read for each connection.
   *
   * @default the URL stays the same
   */
  readonly readUrl?: (() => Promise<PostgresUrl>) | undefined;
  /** The servers now, which may change. @default those of the URL */
  readonly hosts?: () => readonly PostgresHost[];
}

/** Servers that take over from each other. All pools of a database share them. */
export interface Servers {
  /**
   * Connects to the first available server. The one that was used last is tried first, silent
   * ones last. A server that would break what a 200 promises is skipped, as if it were down.
   *
   * @throws {PostgresFailure} `NO_SERVER`; or, if it applies to every server, `UNSAFE` or 25006
   *   (read-only). The message names each server and its reason.
   */
  connect(options?: ConnectionOptions): Promise<Connection>;

  /**
   * The server in use, which accepted a connection last; `undefined` before the first one. If that
   * is no longer one of the servers, the first of those.
   */
  current(): PostgresHost | undefined;

  /** Reports that a server did not reply to a statement: the others are tried before it. */
  suspect(host: PostgresHost): void;

  /**
   * Other servers with the same user, database and settings of TLS.
   *
   * @param hosts Those that there are now.
   */
  at(hosts: () => readonly PostgresHost[]): Servers;
}

/**
 * Connects to the servers of a URL, and remembers which of them responded, and which accepted a
 * connection last: if one pool finds that another server has taken over, the others follow.
 */
export function failover(
  url: PostgresUrl,
  { readUrl, hosts = () => url.hosts }: FailoverOptions = {},
): Servers {
  let latest = url;
  /** Those that did not respond when they were last tried. */
  const silent = new Set<PostgresHost>();
  let current: PostgresHost | undefined;
  const timelines = newestTimelines();

  /** The order in which servers are tried. */
  function rank(host: PostgresHost): number {
    if (silent.has(host)) return 2;
    return host === current ? 0 : 1;
  }

  async function connectToHost(
    host: PostgresHost,
    options?: ConnectionOptions,
  ): Promise<Connection> {
    try {
      const connection = await connectTo(host, latest, {
        ...options,
        async verify(opened) {
          // One server has no other that could have taken over.
          if (hosts().length > 1) await timelines.verify(opened);
          await options?.verify?.(opened);
        },
      });
      silent.delete(host);
      return connection;
    } catch (error) {
      const isSilent = ["DEADLINE", "ERR_POSTGRES_CONNECTION_TIMEOUT"].includes(codeOf(error));
      if (isSilent) silent.add(host);
      else silent.delete(host);

      // invalid_authorization_specification
      throw codeOf(error).startsWith("28") ? await renewCredentials(error) : error;
    }
  }

  /** Takes user and password from the URL as it is now. The next attempt to connect uses them. */
  async function renewCredentials(rejection: unknown): Promise<unknown> {
    if (readUrl === undefined) return rejection;

    try {
      const { username, password } = await withDeadline(readUrl(), url.connectTimeoutMs, () => {
        throw new PostgresFailure("DEADLINE");
      });
      latest = { ...url, username, password };
      return rejection;
    } catch (cause) {
      const message = `${reasonOf(rejection)}; ${reasonOf(cause)}`;
      return new PostgresFailure(codeOf(rejection), message);
    }
  }

  return {
    async connect(options) {
      const connection = await connectToFirst({
        hosts: () => hosts().toSorted((one, other) => rank(one) - rank(other)),
        isSilent: (host) => silent.has(host),
        connect: (host) => connectToHost(host, options),
        retryMs: url.connectTimeoutMs,
      });
      current = connection.host;
      return connection;
    },

    current: () => (current === undefined || hosts().includes(current) ? current : hosts()[0]),
    suspect: (host) => void silent.add(host),
    at: (others) => failover(url, { readUrl, hosts: others }),
  };
}

/**
 * How long a server may keep the next one from being tried, in milliseconds. It may respond later.
 */
const HEAD_START_MS = 1_000;
/**
 * The longest pause before a server that refused is tried again, in milliseconds, give or take half
 * of it.
 */
const LONGEST_PAUSE_MS = 500;

/** The servers to choose from. */
interface Candidates {
  /** Those to try, in this order. */
  hosts(): readonly PostgresHost[];
  isSilent(host: PostgresHost): boolean;
  connect(host: PostgresHost): Promise<Connection>;
  /** How long to retry those that refused, in milliseconds, if another may still respond. */
  readonly retryMs: number;
}

/**
 * Tries servers as in Happy Eyeballs (RFC 8305): one after another, each with a head start, and the
 * first that accepts wins. A silent one has no head start. While a slow one may still respond, the
 * others are retried: one of them may be promoted meanwhile.
 */
async function connectToFirst({
  hosts,
  isSilent,
  connect,
  retryMs,
}: Candidates): Promise<Connection> {
  const accepted = Promise.withResolvers<Connection>();
  let isOver = false;
  /** Those in flight. */
  const attempts = new Map<PostgresHost, Promise<void>>();
  /** The last failure of each server. */
  const failures = new Map<PostgresHost, PostgresFailure>();

  /** Tries one server. Never rejects. */
  async function attempt(host: PostgresHost): Promise<void> {
    try {
      const connection = await connect(host);
      if (isOver) return connection.close();

      isOver = true;
      accepted.resolve(connection);
    } catch (error) {
      if (!(error instanceof PostgresFailure)) return accepted.reject(error);
      failures.set(
        host,
        new PostgresFailure(error.code, `${describeHost(host)}: ${error.message}`),
      );
    } finally {
      attempts.delete(host);
    }
  }

  /** Tries all, again and again, until one accepts or none may respond any more. */
  async function attemptAll(): Promise<Connection> {
    const end = performance.now() + retryMs;

    for (let round = 0; !isOver; round++) {
      for (const host of hosts()) {
        if (isOver || attempts.has(host)) continue;

        const attempted = attempt(host);
        attempts.set(host, attempted);
        if (!isSilent(host)) await withDeadline(attempted, HEAD_START_MS, () => {});
      }

      if (attempts.size === 0 || performance.now() >= end) break;
      await Promise.race([pause(backoffMs(round, LONGEST_PAUSE_MS)), ...attempts.values()]);
    }

    await Promise.all(attempts.values());
    return isOver ? await accepted.promise : fail([...failures.values()]);
  }

  try {
    return await Promise.race([accepted.promise, attemptAll()]);
  } finally {
    isOver = true;
  }
}

/**
 * `UNSAFE` is final, and clients are told that storage is read-only: both are kept if every server
 * has them.
 */
function fail(failures: readonly PostgresFailure[]): never {
  const code =
    ["UNSAFE", "25006"].find((each) => failures.every((failure) => failure.code === each)) ??
    "NO_SERVER";
  throw new PostgresFailure(code, failures.map(({ message }) => message).join("; "));
}
