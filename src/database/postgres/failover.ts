import { backoffMs, pause, withDeadline } from "../../async/timers.ts";
import { reasonOf } from "../../errors.ts";
import { type Connection, type ConnectionOptions, connectTo } from "./connection.ts";
import { codeOf, PostgresFailure } from "./errors.ts";
import { newestTimelines } from "./timelines.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** Options of {@linkcode failover}. */
interface FailoverOptions {
  /**
   * Reloads the URL after a server has rejected the user or the password, which may have been rotated.
   * Everything else in the URL is ignored. Certificates are reloaded for each connection anyway.
   *
   * @default the URL stays the same
   */
  readonly readUrl?: (() => Promise<PostgresUrl>) | undefined;
  /** Returns the current servers, which may change. @default those of the URL */
  readonly hosts?: () => readonly PostgresHost[];
}

/** A primary and the servers that may be promoted in its place. All pools of a database share them. */
export interface Servers {
  /**
   * Connects to the first available server. Tries the last used server first, and silent servers last.
   * Treats a server that could lose acknowledged plants as if it were down.
   *
   * @throws {PostgresFailure} `NO_SERVER`; or, if it applies to every server, `UNSAFE` or 25006
   *   (read-only). The message names each server and its reason.
   */
  connect(options?: ConnectionOptions): Promise<Connection>;

  /**
   * Returns the server in use: the last to accept a connection, or `undefined` before the first. If that
   * server is no longer in the list, returns the first of the list.
   */
  current(): PostgresHost | undefined;

  /** Reports that a server did not reply to a statement, so that other servers are tried before it. */
  suspect(host: PostgresHost): void;

  /**
   * Returns other servers with the same user, database and TLS settings.
   *
   * @param hosts Returns those servers, which may change.
   */
  at(hosts: () => readonly PostgresHost[]): Servers;
}

/**
 * Connects to the servers of a URL. Remembers which of them are silent, and which accepted a connection
 * last: if one pool finds that another server has taken over, the other pools follow.
 */
export function failover(
  url: PostgresUrl,
  { readUrl, hosts = () => url.hosts }: FailoverOptions = {},
): Servers {
  let latest = url;
  /** The servers that did not respond when last tried. */
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
          // With one server, no other can have taken over.
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

  /** Reloads the user and password for the next attempt to connect. Returns the error of this one. */
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

/** How long to wait for a server before trying the next one as well, in milliseconds. */
const HEAD_START_MS = 1_000;
/** The longest pause between two rounds of attempts, in milliseconds, give or take half of it. */
const LONGEST_PAUSE_MS = 500;

/** The servers to choose from. */
interface Candidates {
  /** Returns the servers in the order in which to try them. */
  hosts(): readonly PostgresHost[];
  isSilent(host: PostgresHost): boolean;
  connect(host: PostgresHost): Promise<Connection>;
  /** How long to retry servers that refused while another may still respond, in milliseconds. */
  readonly retryMs: number;
}

/**
 * Tries servers as in Happy Eyeballs (RFC 8305): one after another, each with a head start, and the
 * first to accept wins. A silent server gets no head start. While a slow server may still respond, the
 * others are retried, because one may have been promoted.
 */
async function connectToFirst({
  hosts,
  isSilent,
  connect,
  retryMs,
}: Candidates): Promise<Connection> {
  const accepted = Promise.withResolvers<Connection>();
  let isOver = false;
  /** The attempts in flight. */
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

  /** Tries all servers repeatedly, until one accepts or no attempt is left in flight. */
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
      // The last one has failed meanwhile.
      if (attempts.size === 0) break;
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
 * Throws the failures of all servers as one. Keeps the code `UNSAFE` or 25006 (read-only) if every
 * server has it: an operator must act on the first, and clients are told of the second.
 */
function fail(failures: readonly PostgresFailure[]): never {
  const code =
    ["UNSAFE", "25006"].find((each) => failures.every((failure) => failure.code === each)) ??
    "NO_SERVER";
  throw new PostgresFailure(code, failures.map(({ message }) => message).join("; "));
}
