import type { Logger } from "@logtape/logtape";

import { repeat } from "../async/timers.ts";

/** How often to check the event loop, in milliseconds. */
const CHECK_MS = 500;
/** How late a timer must be to count as a blocked event loop, in milliseconds. */
const BLOCKED_MS = 500;

/**
 * Logs that the event loop was blocked: by too little CPU, a stopped process or machine, or a bug.
 *
 * @param onBlocked Called with how late the check was, in milliseconds.
 */
export function watchEventLoop(log: Logger, onBlocked: (delayMs: number) => void): Disposable {
  let expectedAt = performance.now() + CHECK_MS;
  return repeat(CHECK_MS, async () => {
    const now = performance.now();
    const delayMs = Math.round(now - expectedAt);
    expectedAt = now + CHECK_MS;
    if (delayMs < BLOCKED_MS) return;
    onBlocked(delayMs);
    log.warning("Event loop blocked", { delayMs });
  });
}
