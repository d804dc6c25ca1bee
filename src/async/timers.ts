/** Resolves after this time, in milliseconds. */
export function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}

const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;

/**
 * How long to pause before another attempt, in milliseconds: exponential backoff with jitter, so
 * that two callers do not collide again.
 *
 * @param attempt Counts from 0.
 * @param longestMs What the pause grows to, in milliseconds, before the jitter of half of it.
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
