import { closeSync, openSync } from "node:fs";
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

/** How often to look for a free file descriptor, in milliseconds. */
const DESCRIPTORS_MS = 1_000;

/**
 * Logs, once for each shortage, that the process is out of file descriptors. Bun cannot pause accepting alone: new
 * connections wait in the system's queue, and open ones are served.
 */
export function watchDescriptors(log: Logger): { stop(): void } {
  let isOut = false;
  return repeat(DESCRIPTORS_MS, async () => {
    const wasOut = isOut;
    isOut = !hasDescriptor();
    if (isOut && !wasOut) log.error("Out of file descriptors: new connections wait; raise LimitNOFILE (ulimit -n)");
  });
}

function hasDescriptor(): boolean {
  try {
    closeSync(openSync("/dev/null", "r"));
    return true;
  } catch {
    return false;
  }
}
