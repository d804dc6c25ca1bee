const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;

/**
 * How long to pause before another attempt, in milliseconds: longer each time, with jitter, so that two do not collide
 * again.
 *
 * @param attempt Counts from 0.
 * @param longestMs What the pause grows to, in milliseconds, before the jitter of half of it.
 */
export function backoffMs(attempt: number, longestMs = LONGEST_PAUSE_MS): number {
  return Math.min(longestMs, FIRST_PAUSE_MS * 2 ** attempt) * (0.5 + Math.random());
}

/** Resolves after this time, in milliseconds. */
export function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}
