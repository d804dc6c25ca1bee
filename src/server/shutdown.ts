import type { Logger } from "@logtape/logtape";
import type { Tracing } from "../telemetry/tracing.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { withDeadline } from "../async/deadline.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { Config } from "../settings/settings.ts";
import type { HttpServer } from "./http_server.ts";
import { eventLoopTurn } from "../async/timers.ts";

/** How the time to shut down is divided, in milliseconds: most of it is for the requests in flight. */
export function shutdownBudget({ shutdownTimeoutMs, tracing }: Config) {
  const usesMs = shutdownTimeoutMs * 0.05;
  const tracesMs = tracing === undefined ? 0 : shutdownTimeoutMs * 0.1;
  const closeMs = shutdownTimeoutMs * 0.2;
  return { drainMs: shutdownTimeoutMs - usesMs - tracesMs - closeMs, usesMs, tracesMs, closeMs };
}

/** How long requests have to get their 503 after the storage failed, in milliseconds: the process has to end soon. */
const FAILED_DRAIN_MS = 1_000;

/** The parts that stop, in this order, and how. */
interface ShutdownOptions {
  readonly server: HttpServer;
  readonly commits: GroupCommit;
  readonly tokens: Pick<TokenCache, "writeUses">;
  readonly tracing: Tracing | undefined;
  readonly config: Config;
  readonly log: Logger;
  /** Whether the storage failed. */
  readonly hasFailed: boolean;
}

/**
 * Finishes the requests in flight, with 503 if a plant was not stored in time, and stops listening. After a failure of
 * the storage, nothing is written.
 */
export async function shutDown(options: ShutdownOptions): Promise<void> {
  const { server, commits, tokens, tracing, config, log, hasFailed } = options;
  const { drainMs, usesMs, tracesMs } = shutdownBudget(config);
  const timeoutMs = hasFailed ? FAILED_DRAIN_MS : drainMs;
  const deadline = performance.now() + timeoutMs;
  const drained = commits.drain(timeoutMs / 2);
  await untilQuiet(() => `${server.received()}:${commits.size()}`, timeoutMs / 4);
  await Promise.all([drained, server.stop(deadline - performance.now())]);
  if (!hasFailed) await withDeadline(writeUses(tokens, log), usesMs, () => {});
  if (tracing === undefined) return;
  const reason = "the collector did not accept the last spans in time";
  await withDeadline(tracing.close(), tracesMs, () => log.warning("Trace export failed", { reason }));
}

/** Writes when tokens were last used. What cannot be written is kept for the next call. */
export async function writeUses(tokens: Pick<TokenCache, "writeUses">, log: Logger): Promise<void> {
  await tokens.writeUses().catch((cause) => log.warning("Uses of tokens not written", { cause }));
}

/**
 * Requests that are still arriving get 503 with `Connection: close`, until no request arrived and no commit ended for
 * this long, in milliseconds. A client that got its response may connect again.
 */
const GRACE_MS = 250;

/** @param activity Changes with every request that arrives and with every commit that ends. */
async function untilQuiet(activity: () => string, limitMs: number): Promise<void> {
  const deadline = performance.now() + limitMs;
  let before: string;
  do {
    before = activity();
    await Bun.sleep(Math.min(GRACE_MS, limitMs));
    // Timers run before sockets are read: on a busy machine requests may have waited in the sockets all the time.
    await eventLoopTurn();
    await eventLoopTurn();
  } while (activity() !== before && performance.now() < deadline);
}
