import { type Connection, type ConnectionOptions, connectTo } from "./connection.ts";
import { codeOf, PostgresFailure } from "./errors.ts";
import { describeHost, type PostgresHost, type PostgresUrl } from "./url.ts";

/** How long to try a silent server if there are others, in milliseconds. */
const SILENT_LIMIT_MS = 1_000;

/**
 * Connects to the servers of a URL, and remembers which of them responded.
 *
 * @param onWarning Called once, when a standby is read from.
 */
export function failover(url: PostgresUrl, onWarning: (message: string) => void = () => {}) {
  const silent = new Set<PostgresHost>();
  let lastUsed: PostgresHost | undefined;
  let hasWarned = false;

  const rank = (host: PostgresHost) => (silent.has(host) ? 2 : host === lastUsed ? 0 : 1);

  async function tryHost(host: PostgresHost, options: ConnectionOptions): Promise<Connection> {
    const limitMs = silent.has(host) && url.hosts.length > 1 ? SILENT_LIMIT_MS : url.connectTimeoutMs;
    try {
      const connection = await connectTo(host, url, { ...options, timeoutMs: Math.min(limitMs, options.timeoutMs) });
      silent.delete(host);
      return connection;
    } catch (error) {
      if (["DEADLINE", "ERR_POSTGRES_CONNECTION_TIMEOUT"].includes(codeOf(error))) silent.add(host);
      else silent.delete(host);
      throw error;
    }
  }

  async function connect(options: ConnectionOptions): Promise<Connection> {
    const deadline = performance.now() + options.timeoutMs;
    const failures: PostgresFailure[] = [];
    let standby: Connection | undefined;
    const hosts = url.hosts.toSorted((one, other) => rank(one) - rank(other));
    for (const [index, host] of hosts.entries()) {
      // A silent server leaves the others their share.
      const timeoutMs = (deadline - performance.now()) / (hosts.length - index);
      if (timeoutMs <= 0) break;
      try {
        const connection = await tryHost(host, { ...options, timeoutMs });
        if (!connection.isStandby) {
          standby?.close();
          return connection;
        }
        // Another host may be the primary, which has every plant.
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
    const reasons = failures.map(({ message }) => message).join("; ");
    // `UNSAFE` is final, and clients are told that storage is read-only: both are kept if every server has them.
    const all = (code: string) => failures.length === hosts.length && failures.every((each) => each.code === code);
    const code = ["UNSAFE", "25006"].find(all) ?? "NO_SERVER";
    throw new PostgresFailure(code, reasons || "no time left to try");
  }

  return {
    /**
     * Connects to the first available server. The one that was used last is tried first, silent ones last. A server
     * that would break what a 200 promises is skipped, as if it were down.
     *
     * @throws {PostgresFailure} `NO_SERVER`; or, if it applies to every server, `UNSAFE` or 25006 (read-only). The
     * message names each server and its reason.
     */
    async connect(options: ConnectionOptions): Promise<Connection> {
      const connection = await connect(options);
      lastUsed = connection.host;
      if (connection.isStandby && !hasWarned) onWarning(`${describeHost(connection.host)} ${LAGS}`);
      hasWarned ||= connection.isStandby;
      return connection;
    },
    /** Reports that a server did not reply to a statement: the others are tried before it. */
    suspect: (host: PostgresHost) => void silent.add(host),
  };
}

const LAGS = "is a standby, and no other server is available: it may lack the newest plants and tokens";
