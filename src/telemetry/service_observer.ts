import type { ErrorCode } from "../errors.ts";
import type { Commit } from "../group_commit/group_commit.ts";
import type { Observer } from "../http/observer.ts";
import type { Logging } from "./logging.ts";
import type { Metrics } from "./metrics.ts";
import type { Tracing } from "./tracing.ts";

/** A commit that takes longer is logged, in milliseconds. */
const SLOW_COMMIT_MS = 1_000;

/** What an observer writes to. */
interface ObserverSinks extends Pick<Logging, "log" | "suppresses"> {
  readonly metrics: Metrics;
  /** Whose trace a line names, and that gets every response. */
  readonly tracing?: Pick<Tracing, "traceId" | "onResponse"> | undefined;
}

/** Reports requests and commits. */
interface ServiceObserver extends Observer {
  onCommit(commit: Commit): void;
}

/** Makes an observer that writes to these. */
export function createObserver(
  { log, suppresses, metrics, tracing }: ObserverSinks,
  { accessLog }: { accessLog: boolean },
): ServiceObserver {
  return {
    onError(error, { requestId, clientAddress }) {
      // A request that took too long has no other cause than its error.
      const { code, cause = error, reason = "none" } = error;
      const line = code === "queue_full" && reason !== "none" ? UNCHECKED_CREDENTIALS : LINES[code];
      if (line === undefined) return;

      const { level, message } = line;
      const isRefusal = line === REFUSED_CREDENTIALS || line === UNCHECKED_CREDENTIALS;
      if (suppresses(level, message, isRefusal ? reason : undefined)) return;

      const request = { requestId, traceId: tracing?.traceId() };
      // A function: `LOG_LEVEL=error` leaves the line out, and looking up the client costs.
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

/** The client gets 503 and not 401: it should try again with the same token. */
const UNCHECKED_CREDENTIALS = { level: "warning", message: "Cannot validate credentials" } as const;

/** Other errors are the client's: they are not logged, because their cause may quote a body. */
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
