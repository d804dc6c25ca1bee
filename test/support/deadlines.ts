import { spyOn } from "bun:test";

/** Timers from this length on, in milliseconds, are for deadlines. */
const LONG_MS = 5_000;

/**
 * Lets deadlines of more than five seconds come after a tenth of their time, in this process and to the end of the
 * scope: for tests of what happens then.
 */
export function shortenDeadlines(): Disposable {
  const { setTimeout } = globalThis;
  const sooner = (run: () => void, ms = 0) => setTimeout(run, ms > LONG_MS ? ms / 10 : ms);
  return spyOn(globalThis, "setTimeout").mockImplementation(sooner as unknown as typeof setTimeout);
}
