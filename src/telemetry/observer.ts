import type { Logger } from "@logtape/logtape";
import type { Metrics } from "./metrics.ts";
import type { Tracing } from "./tracing.ts";
import type { PlantStoreError } from "../errors.ts";
import type { Commit } from "../group_commit/batch.ts";
import type { CompletedRequest, ObservedRequest, Observer } from "../http/observer.ts";

/** An observer of requests and of commits. */
export interface ServiceObserver extends Observer {
  onCommit(commit: Commit): void;
}

/** A commit that takes longer is logged, in milliseconds. */
const SLOW_COMMIT_MS = 1_000;

/** Where what is observed goes. */
export interface ObserverSinks {
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
}

/** Logs, counts and traces requests and commits. */
export function createObserver(
  { log, metrics, tracing }: ObserverSinks,
  { accessLog }: { accessLog: boolean },
): ServiceObserver {
  return {
    onError: (error, request) => logError(log, error, request),
    onResponse(completed) {
      metrics.countResponse(completed);
      tracing?.onResponse(completed);
      if (accessLog) logRequest(log, completed);
    },
    onCommit(commit) {
      metrics.countCommit(commit);
      const { outcomes, durationMs } = commit;
      if (durationMs > SLOW_COMMIT_MS) log.warning("Slow commit", { plants: outcomes.length, durationMs });
    },
  };
}

/** Other errors of clients are not logged: their cause may quote a body. */
function logError(log: Logger, { code, cause, reason }: PlantStoreError, request: ObservedRequest): void {
  const { requestId, clientAddress: client } = request;
  if (code === "missing_credentials" || code === "invalid_credentials" || code === "insufficient_scope") {
    log.warning("Refused credentials", { reason: reason ?? "none", requestId, client });
  } else if (code === "queue_full") log.warning("Queue full", { requestId });
  else if (code === "storage_unavailable") log.error("Storage unavailable", { cause, requestId });
  else if (code === "internal") log.error("Internal error", { cause, requestId });
}

function logRequest(log: Logger, completed: CompletedRequest): void {
  const { method, path, status, requestId, clientAddress: client } = completed;
  const durationMs = Math.round(completed.durationMs * 1_000) / 1_000;
  log.info("Request completed", { method, path, status, durationMs, requestId, client });
}
