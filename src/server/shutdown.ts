import type { Logger } from "@logtape/logtape";

import { withDeadline } from "../async/deadline.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import type { HttpServer } from "./http_server.ts";

/** How a server ends. `serve` makes one, and hands it to everything that runs until then. */
export interface Lifetime {
  /** Aborted when the server has to stop: by a signal, or because it failed. */
  readonly stop: AbortSignal;

  /** What failed, before the stop or during it; `undefined` if nothing did. */
  readonly failure: Error | undefined;

  /** Logs a failure, and stops the server because of it. */
  fail(failure: Error): void;

  /** How long a step of the stop may take, in milliseconds. */
  timeoutMs(step: StopStep): number;
}

/** A step of the stop. */
export type StopStep = keyof typeof SHARES;

/** The steps of the stop, in their order, and the share of its time that each may take. */
const SHARES = { requests: 0.65, uses: 0.05, traces: 0.1, database: 0.2 } as const;

/**
 * How long the whole stop may take after a failure, in milliseconds: only a new process can store
 * plants.
 */
const FAILED_STOP_TIMEOUT_MS = 2_000;

/** How a {@linkcode Lifetime} begins. */
export interface LifetimeOptions {
  /** Aborted by the first signal that ends the process. */
  readonly signal: AbortSignal;
  /** How long the whole stop may take after a signal, in milliseconds. */
  readonly shutdownTimeoutMs: number;
  readonly log: Logger;
}

/** Begins the lifetime of a server, and logs why it ends. */
export function beginLifetime({ signal, shutdownTimeoutMs, log }: LifetimeOptions): Lifetime {
  const byFailure = new AbortController();
  const stop = AbortSignal.any([signal, byFailure.signal]);
  let failure: Error | undefined;

  stop.addEventListener("abort", () => {
    if (failure === undefined) log.info("Stopping: finishing the requests in flight");
  });

  return {
    stop,
    get failure() {
      return failure;
    },

    fail(cause) {
      failure ??= cause;
      const { message } = cause;
      log.error(stop.aborted ? `Failed while stopping: ${message}` : `Stopping: ${message}`, {
        cause: cause.cause,
      });
      byFailure.abort();
    },

    timeoutMs(step) {
      const limitMs = failure === undefined ? Number.POSITIVE_INFINITY : FAILED_STOP_TIMEOUT_MS;
      return SHARES[step] * Math.min(shutdownTimeoutMs, limitMs);
    },
  };
}

/** What a running service has to stop, in this order. */
export interface RunningService {
  readonly server: HttpServer;
  readonly commits: GroupCommit;
  /** Writes when tokens were last used. Never rejects. */
  readonly writeUses: () => Promise<void>;
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
  const { server, commits, writeUses, tracing } = service;

  await finishRequests(server, commits, lifetime.timeoutMs("requests"));

  if (lifetime.failure === undefined) {
    await withDeadline(writeUses(), lifetime.timeoutMs("uses"), () => {});
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
