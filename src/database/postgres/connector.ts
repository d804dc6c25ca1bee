import { type Connection, type ConnectionOptions, connectTo } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";
import { describeHost, type PostgresUrl } from "./url.ts";

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
 * @throws {PostgresFailure} `NO_SERVER`, or what all of them have in common: `UNSAFE` if they would break it, 25006 if
 * they are read-only. The message names each server and its reason.
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
  const all = (code: string) => failures.length === url.hosts.length && failures.every((each) => each.code === code);
  const reasons = failures.map(({ message }) => message).join("; ");
  throw new PostgresFailure(SHARED_CODES.find(all) ?? "NO_SERVER", reasons || "there was no time to try");
}

/** Settings stay as they are, and clients are told of a database that is read-only; another server may be back in a moment. */
const SHARED_CODES = ["UNSAFE", "25006"] as const;
