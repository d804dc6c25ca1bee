import type { Logger } from "@logtape/logtape";
import type { Log, LogThrottled } from "./logging.ts";
import type { Metrics } from "./metrics.ts";
import type { Tracing } from "./tracing.ts";
import type { PlantStoreError } from "../errors.ts";
import type { Commit } from "../group_commit/batch.ts";
import type { EventLoop } from "./event_loop.ts";
import type { CompletedRequest, ObservedRequest, Observer } from "../http/observer.ts";

/** An observer of requests, and of commits too. */
export interface ServiceObserver extends Observer {
  onCommit(commit: Commit): void;
}

/** A commit that takes longer is logged, in milliseconds. */
const SLOW_COMMIT_MS = 1_000;

/** Where what is observed goes. */
export interface ObserverSinks extends Log {
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  readonly eventLoop: Pick<EventLoop, "wasBlocked">;
}

/** Logs, counts and traces what happens. */
export function createObserver(
  { log, logThrottled, metrics, tracing, eventLoop }: ObserverSinks,
  { accessLog }: { accessLog: boolean },
): ServiceObserver {
  return {
    onError(error, request) {
      if (isTimeout(error) && eventLoop.wasBlocked()) logLateness(logThrottled, request);
      else logError(logThrottled, error, request);
    },
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

/** Whether the storage did not respond in time; where it refused, the error has a cause. */
function isTimeout({ code, cause }: PlantStoreError): boolean {
  return code === "storage_unavailable" && cause === undefined;
}

function logLateness(log: LogThrottled, { requestId }: ObservedRequest): void {
  log("warning", "Request not handled in time: the event loop was blocked", () => ({ requestId }));
}

/** Errors of clients are not logged, except for credentials: their cause may quote a body. */
function logError(
  log: LogThrottled,
  { code, cause, reason = "none" }: PlantStoreError,
  request: ObservedRequest,
): void {
  const { requestId } = request;
  if (code === "missing_credentials" || code === "invalid_credentials" || code === "insufficient_scope") {
    log("warning", "Refused credentials", () => ({ requestId, client: request.clientAddress() }), reason);
  } else if (code === "queue_full") log("warning", "Queue full", () => ({ requestId }));
  else if (code === "storage_unavailable") log("error", "Storage unavailable", () => ({ cause, requestId }));
  else if (code === "internal") log("error", "Internal error", () => ({ cause, requestId }));
}

function logRequest(log: Logger, completed: CompletedRequest): void {
  const { method, path, status, durationMs, requestId } = completed;
  const roundedMs = Math.round(durationMs * 1_000) / 1_000;
  log.info("Answered", { method, path, status, durationMs: roundedMs, requestId, client: completed.clientAddress() });
}
