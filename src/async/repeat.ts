/**
 * Runs a function repeatedly until it is stopped, for the first time after one pause. The pause begins when a run has
 * ended: runs never overlap, and none follows a run that hangs.
 *
 * @param pauseMs In milliseconds.
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
