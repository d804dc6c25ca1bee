import { afterEach, beforeEach, expect, jest, test } from "bun:test";

import { ERRORS, PlantStoreError } from "../../src/errors.ts";
import { readiness, type ReadinessOptions } from "../../src/http/health.ts";
import { promisesSettled } from "../support/promises_settled.ts";

const FULL = new PlantStoreError("storage_unavailable", "storage is full");
const HANGS = { code: "storage_unavailable", message: ERRORS.storage_unavailable.message };

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

test("readiness() probes once for many who check at once, and again only when the verdict is stale", async () => {
  const { ready, probes } = deferredProbe();
  const checks = Array.from({ length: 100 }, ready);
  probes[0]?.resolve();
  await Promise.all(checks);

  expect(jest.getTimerCount()).toBe(0);

  jest.advanceTimersByTime(499);
  await ready();
  expect(probes).toHaveLength(1);

  jest.advanceTimersByTime(1);
  void ready();
  expect(probes).toHaveLength(2);
});

test("readiness() keeps a probe's error as long as its success; an unforeseen error is storage_unavailable", async () => {
  const { ready, probes } = deferredProbe();
  const first = outcome(ready());
  probes[0]?.reject(FULL);
  expect(await first).toBe(FULL);

  jest.advanceTimersByTime(499);
  expect(await outcome(ready())).toBe(FULL);

  jest.advanceTimersByTime(1);
  const second = outcome(ready());
  const cause = new Error("42501");
  probes[1]?.reject(cause);

  expect(await second).toMatchObject({ ...HANGS, cause });
});

test("readiness() waits a second for the probe when the verdict is stale, even a good one", async () => {
  const { ready, probes } = deferredProbe();
  const first = ready();
  probes[0]?.resolve();
  await first;
  await advance(60_000);

  let verdict: unknown = "none yet";
  void outcome(ready()).then((found) => (verdict = found));
  await advance(900);
  expect(verdict).toBe("none yet");

  await advance(100);
  expect(verdict).toMatchObject(HANGS);
});

test("readiness() rejects at once while a probe hangs, starts no other, and resolves when it has ended well", async () => {
  const { ready, probes } = deferredProbe({ timeoutMs: 100 });
  const first = outcome(ready());
  await advance(100);
  expect(await first).toMatchObject(HANGS);

  await advance(60_000);
  expect(await outcome(ready())).toMatchObject(HANGS);

  probes[0]?.resolve();
  await promisesSettled();
  expect(await outcome(ready())).toBe("ready");
  expect(probes).toHaveLength(1);
});

/** A probe that ends when the test says so, and how. */
function deferredProbe(options: ReadinessOptions = {}) {
  const probes: PromiseWithResolvers<void>[] = [];
  const probe = () => {
    const deferred = Promise.withResolvers<void>();
    probes.push(deferred);
    return deferred.promise;
  };
  return { ready: readiness(probe, options), probes };
}

/** Lets time go on in steps, with the promises that settle in each. */
async function advance(milliseconds: number): Promise<void> {
  for (let passed = 0; passed < milliseconds; passed += 50) {
    await promisesSettled();
    jest.advanceTimersByTime(50);
  }
  await promisesSettled();
}

function outcome(check: Promise<void>): Promise<unknown> {
  return check.then(
    () => "ready",
    (error: unknown) => error,
  );
}
