import type { Logger } from "@logtape/logtape";
import { repeat } from "../async/repeat.ts";

/** Monitors whether the event loop is blocked. */
export interface EventLoop {
  /** Whether it was blocked a short time ago: a timeout then is not the storage's fault. */
  wasBlocked(): boolean;
  stop(): void;
}

/** How often to look, in milliseconds. */
const CHECK_MS = 500;
/** How late a timer is that counts as blocked, in milliseconds. */
const BLOCKED_MS = 500;
/** How long that explains what else is late, in milliseconds. */
const RECENT_MS = 10_000;

/** Logs when the event loop was blocked: by too little CPU, a stopped process or machine, or a bug. */
export function watchEventLoop(log: Logger): EventLoop {
  let expectedAt = performance.now() + CHECK_MS;
  let blockedAt = -Infinity;
  const { stop } = repeat(CHECK_MS, async () => {
    const now = performance.now();
    const delayMs = Math.round(now - expectedAt);
    expectedAt = now + CHECK_MS;
    if (delayMs < BLOCKED_MS) return;
    blockedAt = now;
    log.warning("Event loop blocked", { delayMs });
  });
  return { wasBlocked: () => performance.now() - blockedAt < RECENT_MS, stop };
}
