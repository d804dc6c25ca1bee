import type { ErrorCode } from "../errors.ts";
import type { Commit } from "../group_commit/group_commit.ts";
import type { Observer } from "../http/observer.ts";
import type { Logging } from "./logging.ts";
import type { Metrics } from "./metrics.ts";
import type { Tracing } from "./tracing.ts";

/** The duration of a commit above which it is logged, in milliseconds. */
const SLOW_COMMIT_MS = 1_000;

/** The destinations of an observer. */
interface ObserverSinks extends Pick<Logging, "log" | "suppresses"> {
  readonly metrics: Metrics;
  /** Provides the trace id of a line, and receives every response. */
  readonly tracing?: Pick<Tracing, "traceId" | "onResponse"> | undefined;
}

/** Reports requests and commits. */
interface ServiceObserver extends Observer {
  onCommit(commit: Commit): void;
}

/** Creates an observer. */
export function createObserver(
  { log, suppresses, metrics, tracing }: ObserverSinks,
  { accessLog }: { accessLog: boolean },
): ServiceObserver {
  return {
    onError(error, { requestId, clientAddress }) {
      // The error of a request that timed out has no cause but itself.
      const { code, cause = error, reason = "none" } = error;
      const line = code === "queue_full" && reason !== "none" ? UNCHECKED_CREDENTIALS : LINES[code];
      if (line === undefined) return;

      const { level, message } = line;
      const isRefusal = line === REFUSED_CREDENTIALS || line === UNCHECKED_CREDENTIALS;
      if (suppresses(level, message, isRefusal ? reason : undefined)) return;

      const request = { requestId, traceId: tracing?.traceId() };
      // A function, because looking up the client costs time, and `LOG_LEVEL=error` omits the line.
      if (isRefusal) log.warning(message, () => ({ reason, ...request, client: clientAddress() }));
      else if (level === "warning") log.warning(message, request);
      else log.error(message, { cause, ...request });
    },

    onResponse(completed) {
      metrics.countResponse(completed);
      tracing?.onResponse(completed);
      if (!accessLog) return;

      const { method, path, status, error, requestId, clientAddress, caller } = completed;
      const durationMs = Math.round(completed.durationMs * 1_000) / 1_000;
      log.info("Request completed", {
        method,
        path,
        status,
        error,
        durationMs,
        requestId,
        traceId: tracing?.traceId(),
        client: clientAddress(),
        subject: caller?.subject,
        issuer: caller?.issuer,
      });
    },

    onCommit(commit) {
      metrics.countCommit(commit);
      const { outcomes, durationMs } = commit;
      if (durationMs > SLOW_COMMIT_MS)
        log.warning("Slow commit", { plants: outcomes.length, durationMs });
    },
  };
}

const REFUSED_CREDENTIALS = { level: "warning", message: "Refused credentials" } as const;

/** The client gets 503, not 401, so that it retries with the same token. */
const UNCHECKED_CREDENTIALS = { level: "warning", message: "Cannot validate credentials" } as const;

/** The errors to log. Others are the client's, and their cause may quote a body. */
const LINES: Partial<
  Record<ErrorCode, { readonly level: "warning" | "error"; readonly message: string }>
> = {
  missing_credentials: REFUSED_CREDENTIALS,
  invalid_credentials: REFUSED_CREDENTIALS,
  insufficient_scope: REFUSED_CREDENTIALS,
  queue_full: { level: "warning", message: "Queue full" },
  storage_unavailable: { level: "error", message: "Storage unavailable" },
  internal: { level: "error", message: "Internal error" },
};
