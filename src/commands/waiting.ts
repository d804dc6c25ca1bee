/** Resolves when a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

/** Runs again and again with a pause between, until it is stopped: one that hangs is followed by no other. */
export function repeat(pauseMs: number, run: () => Promise<unknown>): { stop(): void } {
  let stopped = false;
  let timer = setTimeout(again, pauseMs);
  async function again(): Promise<void> {
    await run();
    if (!stopped) timer = setTimeout(again, pauseMs);
  }
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
