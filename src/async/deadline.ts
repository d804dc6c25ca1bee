import { MAX_TIMER_MS } from "./limits.ts";

/**
 * Waits for a promise until a deadline. Clears the timer either way. Ignores how the promise
 * settles after the deadline, even if it rejects.
 *
 * @param timeoutMs How long to wait, in milliseconds. A negative value counts as 0, and `Infinity`
 *   as 25 days.
 * @param onTimeout Called at the deadline: what it returns takes the promise's place, what it
 *   throws rejects.
 * @throws Whatever the promise rejects with, or `onTimeout` throws.
 * @example
 * await withDeadline(server.stop(), 10_000, () => log("Connections are left"));
 */
export function withDeadline<Value, Late>(
  promise: Promise<Value>,
  timeoutMs: number,
  onTimeout: () => Late,
): Promise<Value | Late> {
  const timeout = Promise.withResolvers<void>();
  const clear = startDeadline(timeoutMs, timeout.resolve);
  return Promise.race([promise, timeout.promise.then(onTimeout)]).finally(clear);
}

/** How late a timer fires if its thread was blocked or its process was stopped, in milliseconds. */
const BLOCKED_MS = 100;
/** How long handling what arrived meanwhile may take, in milliseconds. */
const MAX_EXTENSION_MS = 1_000;

/**
 * Calls a function at a deadline. If the timer fires late, a response may have arrived unread. So
 * the deadline is extended once, by as much as the timer was late, up to a second.
 *
 * @returns A function that clears the deadline.
 */
export function startDeadline(timeoutMs: number, onTimeout: () => void): () => void {
  const delayMs = Math.min(Math.max(0, timeoutMs), MAX_TIMER_MS);
  const deadline = performance.now() + delayMs;
  let timer = setTimeout(() => {
    const lateMs = performance.now() - deadline;
    if (lateMs < BLOCKED_MS) onTimeout();
    else timer = setTimeout(onTimeout, Math.min(lateMs, MAX_EXTENSION_MS));
  }, delayMs);
  return () => clearTimeout(timer);
}

/**
 * Waits for a promise until a signal is aborted. Ignores how the promise settles after that, even
 * if it rejects.
 *
 * @returns The promise's value, or `undefined` if the signal was aborted first.
 * @throws Whatever the promise rejects with.
 * @example
 * const opened = await withAbort(openDatabase(), signal);
 */
export async function withAbort<Value>(
  promise: Promise<Value>,
  signal: AbortSignal,
): Promise<Value | undefined> {
  const aborted = Promise.withResolvers<undefined>();
  const onAbort = () => aborted.resolve(undefined);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort);

  try {
    return await Promise.race([aborted.promise, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
