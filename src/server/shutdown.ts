import type { Logger } from "@logtape/logtape";

import { withDeadline } from "../async/deadline.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import { writeUses } from "./authentication.ts";
import type { HttpServer } from "./http_server.ts";
import type { Lifetime } from "./lifetime.ts";

/** What a running service has to stop, in this order. */
export interface RunningService {
  readonly server: HttpServer;
  readonly commits: GroupCommit;
  readonly tokens: Pick<TokenCache, "writeUses">;
  readonly tracing: Tracing | undefined;
}

/**
 * Stops a service: finishes the requests in flight, with 503 if a plant was not stored in time, and
 * stops listening. Then writes when tokens were used, unless the storage failed, and sends the last
 * spans.
 */
export async function shutDown(
  service: RunningService,
  lifetime: Lifetime,
  log: Logger,
): Promise<void> {
  const { server, commits, tokens, tracing } = service;

  await finishRequests(server, commits, lifetime.timeoutMs("requests"));

  if (lifetime.failure === undefined) {
    await withDeadline(writeUses(tokens, log), lifetime.timeoutMs("uses"), () => {});
  }

  if (tracing !== undefined) {
    const reason = "the collector did not accept the last spans in time";
    const notSent = () => log.warning("Trace export failed", { reason });
    await withDeadline(tracing.close(), lifetime.timeoutMs("traces"), notSent);
  }
}

/**
 * Finishes the requests in flight. At first the server still listens: requests on their way get 503
 * with `Connection: close`, where a closed port would lose them.
 */
async function finishRequests(
  server: HttpServer,
  commits: GroupCommit,
  timeoutMs: number,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  const drained = commits.drain(timeoutMs / 2);

  await server.untilQuiet(timeoutMs / 4);
  await Promise.all([drained, server.stop(deadline - performance.now())]);
}
