import { Elysia } from "elysia";
import { withDeadline } from "../async/deadline.ts";
import { PlantStoreError } from "../errors.ts";

/**
 * The two public paths for supervisors and load balancers: `/livez` is 200 while the process can respond, `/readyz`
 * while a plant could be stored.
 *
 * @param ready Resolves when a plant could be stored now; throws a `PlantStoreError` when not.
 */
export function health(ready: () => Promise<void>) {
  return new Elysia({ name: "health" })
    .get("/livez", () => ({ status: "ok" }), { detail: { hide: true } })
    .get(
      "/readyz",
      async () => {
        await ready();
        return { status: "ok" };
      },
      { detail: { hide: true } },
    );
}

/** How often {@linkcode readiness} probes, and how long it waits. */
export interface ReadinessOptions {
  /** How long a verdict is fresh, in milliseconds: the path is public, and a probe costs an fsync. @default {500} */
  readonly maxAgeMs?: number;
  /** How long a probe may take before the storage counts as hanging, in milliseconds. @default {1_000} */
  readonly timeoutMs?: number;
}

/**
 * Turns a costly probe into a cheap check whether a plant could be stored now. However often it is called, one probe
 * runs at a time, and a fresh verdict is used again. A stale verdict is never used (RFC 9111 section 4.2.4): the check
 * waits for the probe, and rejects once the probe has run for `timeoutMs`.
 *
 * @param probe Resolves when a plant could be stored now.
 * @returns The check. It rejects with the probe's `PlantStoreError`, or with `storage_unavailable` if the probe hangs or
 * rejects with anything else: even with a bug, requests are better sent elsewhere.
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
export function readiness(probe: () => Promise<void>, options: ReadinessOptions = {}): () => Promise<void> {
  const { maxAgeMs = 500, timeoutMs = 1_000 } = options;
  let verdict: Promise<void>;
  let staleAt = Number.NEGATIVE_INFINITY;

  function startProbe(): void {
    const probing = probe().catch((cause: unknown) => {
      throw cause instanceof PlantStoreError ? cause : new PlantStoreError("storage_unavailable", undefined, { cause });
    });
    verdict = withDeadline(probing, timeoutMs, () => {
      throw new PlantStoreError("storage_unavailable");
    });
    staleAt = Number.POSITIVE_INFINITY;
    const end = () => {
      // The probe's own verdict, if it came after the deadline.
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
