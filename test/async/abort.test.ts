import { expect, test } from "bun:test";
import { withAbort } from "../../src/async/abort.ts";

const never = new Promise<string>(() => {});

test("withAbort() settles as the promise does, and leaves no listener behind", async () => {
  const { signal } = new AbortController();
  const listeners = new Set<unknown>();
  signal.addEventListener = (_: string, listener: unknown) => void listeners.add(listener);
  signal.removeEventListener = (_: string, listener: unknown) => void listeners.delete(listener);
  expect(await withAbort(Promise.resolve("in time"), signal)).toBe("in time");
  const cause = new Error("out of order");
  await expect(withAbort(Promise.reject(cause), signal)).rejects.toBe(cause);
  expect(listeners.size).toBe(0);
});

test("withAbort() resolves to nothing when the signal is aborted, before or meanwhile", async () => {
  const controller = new AbortController();
  const waiting = withAbort(never, controller.signal);
  controller.abort();
  expect(await waiting).toBeUndefined();
  expect(await withAbort(never, controller.signal)).toBeUndefined();
});
