import { spyOn } from "bun:test";

/** Timers from this length on, in milliseconds, are for deadlines. */
const LONG_MS = 5_000;

/**
 * For tests of what happens at a deadline of seconds, to the end of the scope. A timer that long
 * ends after a tenth of its time, and `performance.now()` moves on by what the test says.
 */
export function shortenDeadlines() {
  const { setTimeout } = globalThis;
  const now = performance.now.bind(performance);
  const sooner = (run: () => void, ms = 0) => setTimeout(run, ms > LONG_MS ? ms / 10 : ms);
  let passedMs = 0;
  const spies = [
    spyOn(globalThis, "setTimeout").mockImplementation(sooner as unknown as typeof setTimeout),
    spyOn(performance, "now").mockImplementation(() => now() + passedMs),
  ];

  return {
    /** Lets time pass at once, in milliseconds. */
    pass: (ms: number) => void (passedMs += ms),
    [Symbol.dispose]: () => spies.forEach((spy) => spy.mockRestore()),
  };
}
