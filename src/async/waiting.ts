/** Resolves when a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

/** Resolves after a turn of the event loop: a loop that never waits for one hears of no signal. */
export function eventLoopTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * Runs a function repeatedly until it is stopped, for the first time after one pause. The pause begins when a run has
 * ended, so runs never overlap, and no run follows one that hangs.
 */
export function repeat(pauseMs: number, run: () => Promise<unknown>): { stop(): void } {
  let stopped = false;
  let timer = setTimeout(runAndRepeat, pauseMs);

  async function runAndRepeat(): Promise<void> {
    await run();
    if (!stopped) timer = setTimeout(runAndRepeat, pauseMs);
  }

  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** Waits for a promise, but not past `stop`. Resolves to whether the promise was the first. */
export async function isDone(promise: Promise<unknown>, stop: AbortSignal): Promise<boolean> {
  const stopped = Promise.withResolvers<boolean>();
  const end = () => stopped.resolve(false);
  if (stop.aborted) end();
  stop.addEventListener("abort", end);
  try {
    return await Promise.race([stopped.promise, promise.then(() => true)]);
  } finally {
    stop.removeEventListener("abort", end);
  }
}
