import { type Connection, type ConnectionOptions, connectTo } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** Connects to the first server of a URL that can be used. */
export interface Failover {
  /**
   * Connects to the first server that can be used: the one that was used last is tried first, and those that did not
   * respond are tried last. A server that would break what a 200 promises is passed by like one that is down.
   *
   * @throws {PostgresFailure} `NO_SERVER`, or what all servers have in common: `UNSAFE` if they would break the promise,
   * 25006 if they are read-only. The message names each server and its reason.
   */
  connect(options: ConnectionOptions): Promise<Connection>;

  /** Tells that a server has not replied to a statement: others are tried before it. */
  suspect(host: PostgresHost): void;
}

/** How long to try a server that did not respond before, as long as there are others, in milliseconds. */
const SILENT_LIMIT_MS = 1_000;

/**
 * Connects to the servers of a URL, and keeps in mind which of them responded.
 *
 * @param onWarning Is told of the first standby that is read from.
 */
export function failover(url: PostgresUrl, onWarning: (message: string) => void = () => {}): Failover {
  const silent = new Set<PostgresHost>();
  let lastUsed: PostgresHost | undefined;
  let hasWarned = false;

  function inOrder(): readonly PostgresHost[] {
    const rank = (host: PostgresHost) => (silent.has(host) ? 2 : host === lastUsed ? 0 : 1);
    return url.hosts.toSorted((one, other) => rank(one) - rank(other));
  }

  async function tryHost(host: PostgresHost, options: ConnectionOptions): Promise<Connection> {
    const limitMs = silent.has(host) && url.hosts.length > 1 ? SILENT_LIMIT_MS : url.connectTimeoutMs;
    try {
      const connection = await connectTo(host, url, { ...options, timeoutMs: Math.min(limitMs, options.timeoutMs) });
      silent.delete(host);
      return connection;
    } catch (error) {
      const code = error instanceof PostgresFailure ? error.code : "";
      if (code === "DEADLINE" || code === "ERR_POSTGRES_CONNECTION_TIMEOUT") silent.add(host);
      else silent.delete(host);
      throw error;
    }
  }

  async function connect(options: ConnectionOptions): Promise<Connection> {
    const deadline = performance.now() + options.timeoutMs;
    const failures: PostgresFailure[] = [];
    let standby: Connection | undefined;
    for (const [index, host] of inOrder().entries()) {
      // One that does not respond leaves the others their share.
      const timeoutMs = (deadline - performance.now()) / (url.hosts.length - index);
      if (timeoutMs <= 0) break;
      try {
        const connection = await tryHost(host, { ...options, timeoutMs });
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
    const all = (code: string) => failures.length === url.hosts.length && failures.every((each) => each.code === code);
    const reasons = failures.map(({ message }) => message).join("; ");
    throw new PostgresFailure(SHARED_CODES.find(all) ?? "NO_SERVER", reasons || "there was no time to try");
  }

  return {
    async connect(options) {
      const connection = await connect(options);
      lastUsed = connection.host;
      if (connection.isStandby && !hasWarned) onWarning(`${describeHost(connection.host)} ${LAGS}`);
      hasWarned ||= connection.isStandby;
      return connection;
    },
    suspect: (host) => void silent.add(host),
  };
}

const LAGS = "is a standby, and no other server can be used: it may lack the newest plants and tokens";

/** Settings stay as they are, and clients are told of a database that is read-only; another server may be back in a moment. */
const SHARED_CODES = ["UNSAFE", "25006"] as const;
