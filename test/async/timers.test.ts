import { afterEach, beforeEach, expect, jest, spyOn, test } from "bun:test";

import { withAbort, withDeadline } from "../../src/async/timers.ts";
import { promisesSettled } from "../support/promises_settled.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const never = () => new Promise<string>(() => {});

test("withDeadline() settles as the promise does in time, leaves no timer behind, and does not call onTimeout()", async () => {
  const onTimeout = jest.fn(() => "late");
  expect(await withDeadline(Promise.resolve("in time"), 100, onTimeout)).toBe("in time");
  const cause = new Error("out of order");
  await expect(withDeadline(Promise.reject(cause), 100, onTimeout)).rejects.toBe(cause);
  expect(jest.getTimerCount()).toBe(0);
  expect(onTimeout).not.toHaveBeenCalled();
});

test("withDeadline() settles as onTimeout() does, at the deadline and not before", async () => {
  const onTimeout = jest.fn(() => "late");
  const waiting = withDeadline(never(), 100, onTimeout);
  jest.advanceTimersByTime(99);
  await promisesSettled();

  expect(onTimeout).not.toHaveBeenCalled();

  jest.advanceTimersByTime(1);
  expect(await waiting).toBe("late");
  expect([onTimeout.mock.calls.length, jest.getTimerCount()]).toEqual([1, 0]);

  const failing = withDeadline(never(), 100, () => {
    throw new Error("too late");
  });
  jest.advanceTimersByTime(100);

  await expect(failing).rejects.toThrow("too late");
});

test("withDeadline() ends at once if the time is over, without the warning of a negative timer", async () => {
  using setTimeout = spyOn(globalThis, "setTimeout");
  const waiting = withDeadline(never(), -200, () => "late");
  jest.advanceTimersByTime(1);
  expect(await waiting).toBe("late");
  expect(setTimeout.mock.calls.map(([, delayMs]) => delayMs)).toEqual([0]);
});

test("withDeadline() ignores a rejection after the deadline: it is not unhandled", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  const { promise, reject } = Promise.withResolvers<string>();
  const waiting = withDeadline(promise, 100, () => "late");

  jest.advanceTimersByTime(100);
  expect(await waiting).toBe("late");

  reject(new Error("out of order"));
  jest.useRealTimers();

  // Unhandled rejections are reported after the microtasks.
  await new Promise((resolve) => setImmediate(resolve));
  process.off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
});

test("withAbort() settles as the promise does, and leaves no listener behind", async () => {
  const { signal } = new AbortController();
  using add = spyOn(signal, "addEventListener");
  using remove = spyOn(signal, "removeEventListener");
  expect(await withAbort(Promise.resolve("in time"), signal)).toBe("in time");
  const cause = new Error("out of order");
  await expect(withAbort(Promise.reject(cause), signal)).rejects.toBe(cause);
  expect(remove.mock.calls).toEqual(add.mock.calls);
});

test("withAbort() resolves to nothing when the signal is aborted, before or meanwhile", async () => {
  const controller = new AbortController();
  const waiting = withAbort(never(), controller.signal);
  controller.abort();
  expect(await waiting).toBeUndefined();
  expect(await withAbort(never(), controller.signal)).toBeUndefined();
});
