import { Elysia } from "elysia";

import { MAX_TIMER_MS, withDeadline } from "../async/timers.ts";
import { PlantStoreError, requireNoMore, requireNumber } from "../errors.ts";

/**
 * The two public paths for supervisors and load balancers: `/livez` returns 200 while the process
 * can respond, `/readyz` while a plant could be stored.
 *
 * @param ready Resolves if a plant could be stored now, and rejects with a `PlantStoreError` if not.
 */
export function health(ready: () => Promise<void>) {
  const hidden = { detail: { hide: true } };
  // A cached copy could report a server that is gone.
  const init = { headers: { "cache-control": "no-store", "x-content-type-options": "nosniff" } };
  const ok = () => Response.json({ status: "ok" }, init);

  return new Elysia({ name: "health" }).get("/livez", ok, hidden).get(
    "/readyz",
    async () => {
      await ready();
      return ok();
    },
    hidden,
  );
}

/** Options of {@linkcode readiness}. */
export interface ReadinessOptions {
  /**
   * How long a verdict is fresh, in milliseconds: the path is public, and a probe costs an fsync.
   *
   * @default {500}
   */
  readonly maxAgeMs?: number | undefined;
  /**
   * How long a probe may take before the storage counts as hanging, in milliseconds. @default
   * {1_000}
   */
  readonly timeoutMs?: number | undefined;
}

/**
 * Returns a cheap check whether a plant could be stored now, based on a costly probe. One probe
 * runs at a time, and its verdict is reused while it is fresh. A stale verdict is never used (RFC
 * 9111 section 4.2.4): the check waits for the next probe, and rejects once that has run for
 * `timeoutMs`.
 *
 * @param probe Resolves if a plant could be stored now.
 * @returns The check. It rejects with the probe's `PlantStoreError`. If the probe hangs, or rejects
 *   with anything else, it rejects with `storage_unavailable`, so that a load balancer sends
 *   requests elsewhere even after a bug.
 * @throws {TypeError} If an option is not a number of milliseconds.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readiness } from "plant-store";
 *
 * const ready = readiness(() => new Promise(() => {}), { timeoutMs: 1 });
 *
 * await assert.rejects(ready(), { code: "storage_unavailable" });
 * ```
 */
export function readiness(
  probe: () => Promise<void>,
  options: ReadinessOptions = {},
): () => Promise<void> {
  const { maxAgeMs = 500, timeoutMs = 1_000, ...rest } = options;
  requireNoMore(rest);
  requireNumber("maxAgeMs", maxAgeMs, { min: 0, max: MAX_TIMER_MS });
  requireNumber("timeoutMs", timeoutMs, { max: MAX_TIMER_MS });

  let verdict: Promise<void>;
  let staleAt = Number.NEGATIVE_INFINITY;

  function startProbe(): void {
    const probing = probe().catch((cause: unknown) => {
      throw cause instanceof PlantStoreError
        ? cause
        : new PlantStoreError("storage_unavailable", undefined, { cause });
    });

    // No other probe begins until this one ends.
    staleAt = Number.POSITIVE_INFINITY;
    verdict = withDeadline(probing, timeoutMs, () => {
      throw new PlantStoreError("storage_unavailable");
    });

    const end = () => {
      // If the probe ends after the deadline, its own verdict counts.
      verdict = probing;
      staleAt = performance.now() + maxAgeMs;
    };
    probing.then(end, end);
  }

  return () => {
    if (performance.now() >= staleAt) startProbe();
    return verdict;
  };
}
