import type { CheckProgress, CheckResult } from "../adapter.ts";

/** The request to the Worker that checks, and the one to end early. */
export interface IntegrityRequest {
  readonly type: "check";
  readonly path: string;
  readonly background: boolean;
  readonly file: string | undefined;
}
export interface IntegrityStop {
  readonly type: "stop";
}

/** What the Worker sends. */
export type IntegrityReport =
  { readonly type: "ready" } | (CheckProgress & { readonly type: "progress" }) | CheckResult;

/** How to check. */
export interface IntegrityCheckOptions {
  /**
   * Whether a server needs the processor, and the WAL short: the check rests between its steps, and checks how all
   * pages hang together in small files only.
   */
  readonly background: boolean;
  /** Which file to check, as of `identityAt`: with another one at the path the check fails. @default any */
  readonly file?: string | undefined;
  /** Takes the progress of a check that is not in the background. @default does nothing */
  readonly onProgress?: (progress: CheckProgress) => void;
}

/** A Worker that checks a database once. */
export interface IntegrityChecker {
  /** Resolves once the Worker runs. From then on it needs file descriptors for the database only. */
  readonly ready: Promise<void>;
  /** Begins the check. Never rejects. */
  check(options: IntegrityCheckOptions): Promise<CheckResult>;
  /** Ends the check after the step it is in, or before it begins. Resolves when its connection is closed. */
  stop(): Promise<void>;
}

/**
 * Starts a Worker that checks a plant-store's database for damage, also while a server writes to it. It keeps the process
 * alive until its check has ended or was stopped.
 */
export function integrityChecker(path: string): IntegrityChecker {
  const worker = new Worker(new URL("./integrity_worker.js", import.meta.url));
  const { promise, resolve } = Promise.withResolvers<CheckResult>();
  const { promise: ready, resolve: started } = Promise.withResolvers<void>();
  let onProgress: IntegrityCheckOptions["onProgress"];
  worker.addEventListener("message", ({ data: report }: MessageEvent<IntegrityReport>) => {
    if (report.type === "ready") started();
    else if (report.type === "progress") onProgress?.(report);
    else resolve(report);
  });
  worker.addEventListener("error", ({ message }) => {
    started();
    resolve({ type: "failed", reason: message });
  });
  const send = (request: IntegrityRequest | IntegrityStop) => worker.postMessage(request);
  const result = promise.finally(() => worker.terminate());
  return {
    ready,
    check({ background, file, ...options }) {
      onProgress = options.onProgress;
      send({ type: "check", path, background, file });
      return result;
    },
    async stop() {
      send({ type: "stop" });
      await result;
    },
  };
}
