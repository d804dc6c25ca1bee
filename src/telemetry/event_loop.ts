import type { Logger } from "@logtape/logtape";
import { repeat } from "../async/timers.ts";

/** How often to look, in milliseconds. */
const CHECK_MS = 500;
/** How late a timer is if the event loop was blocked, in milliseconds. */
const BLOCKED_MS = 500;

/** Logs when the event loop was blocked: by too little CPU, a stopped process or machine, or a bug. */
export function watchEventLoop(log: Logger): { stop(): void } {
  let expectedAt = performance.now() + CHECK_MS;
  return repeat(CHECK_MS, async () => {
    const now = performance.now();
    const delayMs = Math.round(now - expectedAt);
    expectedAt = now + CHECK_MS;
    if (delayMs >= BLOCKED_MS) log.warning("Event loop blocked", { delayMs });
  });
}
