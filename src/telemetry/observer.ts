import type { Logging } from "./logging.ts";
import type { Metrics } from "./metrics.ts";
import type { Tracing } from "./tracing.ts";
import type { PlantStoreError } from "../errors.ts";
import type { Commit } from "../group_commit/batch.ts";
import type { Observer } from "../http/observer.ts";

/** An observer of requests and of commits. */
export interface ServiceObserver extends Observer {
  onCommit(commit: Commit): void;
}

/** A commit that takes longer is logged, in milliseconds. */
const SLOW_COMMIT_MS = 1_000;

/** The log, the metrics and the traces that an observer writes to. */
export interface ObserverSinks extends Pick<Logging, "log" | "suppresses"> {
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
}

/** Logs, counts and traces requests and commits. */
export function createObserver(
  { log, suppresses, metrics, tracing }: ObserverSinks,
  { accessLog }: { accessLog: boolean },
): ServiceObserver {
  return {
    onError(error, request) {
      const line = lineOf(error);
      if (line === undefined || suppresses(line.level, line.message, line.reason)) return;
      const { level, message, reason } = line;
      const { requestId, clientAddress: client } = request;
      if (level === "warning")
        log.warning(message, reason === undefined ? { requestId } : { reason, requestId, client });
      else log.error(message, { cause: error.cause, requestId });
    },
    onResponse(completed) {
      metrics.countResponse(completed);
      tracing?.onResponse(completed);
      if (!accessLog) return;
      const { method, path, status, requestId, clientAddress: client } = completed;
      const durationMs = Math.round(completed.durationMs * 1_000) / 1_000;
      log.info("Request completed", { method, path, status, durationMs, requestId, client });
    },
    onCommit(commit) {
      metrics.countCommit(commit);
      const { outcomes, durationMs } = commit;
      if (durationMs > SLOW_COMMIT_MS) log.warning("Slow commit", { plants: outcomes.length, durationMs });
    },
  };
}

/** A line about an error. */
interface Line {
  readonly level: "warning" | "error";
  readonly message: string;
  /** Why credentials were refused. */
  readonly reason?: string;
}

/** Other errors are the client's: they are not logged, because their cause may quote a body. */
function lineOf({ code, reason = "none" }: PlantStoreError): Line | undefined {
  if (code === "missing_credentials" || code === "invalid_credentials" || code === "insufficient_scope") {
    return { level: "warning", message: "Refused credentials", reason };
  }
  if (code === "queue_full") return { level: "warning", message: "Queue full" };
  if (code === "storage_unavailable") return { level: "error", message: "Storage unavailable" };
  return code === "internal" ? { level: "error", message: "Internal error" } : undefined;
}
