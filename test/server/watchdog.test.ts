import { afterEach, beforeEach, expect, jest, spyOn, test } from "bun:test";

import { watchEventLoop } from "../../src/server/watchdog.ts";
import { memoryLog } from "../support/memory_log.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

test("each check of the event loop that comes half a second late is logged and counted, with how late it was", async () => {
  using memory = memoryLog();
  using clock = spyOn(performance, "now").mockReturnValue(0);
  const counted: number[] = [];
  using _ = watchEventLoop(memory.log, (delayMs) => counted.push(delayMs));
  let now = 0;

  for (const passedMs of [500, 999, 1_000, 500, 3_000, 500]) {
    clock.mockReturnValue((now += passedMs));
    jest.advanceTimersByTime(500);
    // The next check is set after this one, in a microtask.
    await Promise.resolve().then(() => {});
  }

  const late = (delayMs: number) => ({ level: "WARN", message: "Event loop blocked", delayMs });
  expect(memory.lines).toEqual([late(500), late(2_500)]);
  expect(counted).toEqual([500, 2_500]);
});
