/**
 * The maximum time of a timer, in milliseconds: with more, it fires at once (HTML standard, section
 * 8.6).
 */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Waits for a promise until a deadline. Clears the timer either way. Ignores how the promise
 * settles after the deadline, even if it rejects.
 *
 * @param timeoutMs How long to wait, in milliseconds. A negative value counts as 0, and `Infinity`
 *   as 25 days.
 * @param onTimeout Called at the deadline: its result replaces the promise's value, and its error
 *   rejects.
 * @throws {TypeError} If `timeoutMs` is not a number.
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
/** The maximum extension of a late deadline, in milliseconds. */
const MAX_EXTENSION_MS = 1_000;

/**
 * Calls a function at a deadline. If the timer fires late, a response may have arrived unread. So
 * the deadline is extended once, by as much as the timer was late, up to a second.
 *
 * @returns A function that clears the deadline.
 * @throws {TypeError} If `timeoutMs` is not a number.
 */
export function startDeadline(timeoutMs: number, onTimeout: () => void): () => void {
  const delayMs = Math.min(Math.max(0, timeoutMs), MAX_TIMER_MS);
  // A timer would treat NaN as 0.
  if (Number.isNaN(delayMs))
    throw new TypeError(`Cannot use \`timeoutMs\` ${timeoutMs}: expected a number`);

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

/** Resolves after this time, in milliseconds. */
export function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}

/** Blocks this thread for this time, in milliseconds. */
export function sleepSync(delayMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, delayMs);
}

const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;

/**
 * Returns how long to pause before another attempt, in milliseconds: exponential backoff with
 * jitter, so that two callers do not collide again.
 *
 * @param attempt Counts from 0.
 * @param longestMs The maximum pause in milliseconds, before the jitter of half of it.
 */
export function backoffMs(attempt: number, longestMs = LONGEST_PAUSE_MS): number {
  return Math.min(longestMs, FIRST_PAUSE_MS * 2 ** attempt) * (0.5 + Math.random());
}

/**
 * Runs a function repeatedly until it is disposed of, first after one pause. The next pause begins
 * when the run ends: runs never overlap, and none follows a run that hangs.
 *
 * @param pauseMs In milliseconds.
 */
export function repeat(pauseMs: number, run: () => Promise<unknown>): Disposable {
  let stopped = false;
  let timer = setTimeout(runAndRepeat, pauseMs);

  async function runAndRepeat(): Promise<void> {
    await run();
    if (!stopped) timer = setTimeout(runAndRepeat, pauseMs);
  }

  return {
    [Symbol.dispose]() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** Resolves after a turn of the event loop, which handles signals, timers and sockets. */
export function eventLoopTurn(): Promise<void> {
  return new Promise((resolve) => onNextTurn(resolve));
}

/**
 * Calls a function after a turn of the event loop. `setImmediate` is not a web standard, but Bun,
 * Deno and Node have it. A timer of zero milliseconds takes one or more.
 */
export function onNextTurn(run: () => void): void {
  const { setImmediate = setTimeout } = globalThis as {
    readonly setImmediate?: (run: () => void) => unknown;
  };
  setImmediate(run);
}
