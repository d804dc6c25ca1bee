import { closeSync, openSync } from "node:fs";
import type { Logger } from "@logtape/logtape";
import type { HttpServer } from "./http_server.ts";
import { repeat } from "../async/repeat.ts";

/** How often descriptors are looked for, in milliseconds: for that long, accepting in vain can take a whole core. */
const CHECK_MS = 200;
/** For how long at least nothing is accepted when there are none, in milliseconds. */
const PAUSE_MS = 2_000;
/** How many have to be free to listen again. */
const ENOUGH = 16;
/** How long without a pause until the shortage counts as over, in milliseconds. */
const CALM_MS = 10_000;

/**
 * Stops listening while the process is out of file descriptors: Bun would try to accept without end, at the cost of a
 * whole core. Clients that cannot be served are refused at once, and those who are connected are served.
 */
export function watchDescriptors(server: Pick<HttpServer, "pause" | "resume">, log: Logger): { stop(): void } {
  /** When the last pause began, until the shortage is over. */
  let pausedAt: number | undefined;
  let isPaused = false;

  function pause(): void {
    if (pausedAt === undefined) log.error("Out of file descriptors: new connections are refused until some are free");
    pausedAt = performance.now();
    isPaused = true;
    server.pause();
  }

  function resume(): void {
    try {
      server.resume();
      isPaused = false;
    } catch (cause) {
      log.warning("Cannot listen again yet", { cause });
    }
  }

  return repeat(CHECK_MS, async () => {
    if (!isPaused && !hasDescriptors(1)) return pause();
    const sinceMs = performance.now() - (pausedAt ?? -Infinity);
    if (isPaused && sinceMs >= PAUSE_MS && hasDescriptors(ENOUGH)) resume();
    if (isPaused || pausedAt === undefined || sinceMs < CALM_MS) return;
    log.info("There are enough file descriptors again");
    pausedAt = undefined;
  });
}

/** Whether the system gives this process so many more descriptors. */
function hasDescriptors(count: number): boolean {
  const opened: number[] = [];
  try {
    while (opened.length < count) opened.push(openSync("/dev/null", "r"));
    return true;
  } catch {
    return false;
  } finally {
    opened.forEach((descriptor) => closeSync(descriptor));
  }
}
