import { expect, test } from "bun:test";
import { startLogging } from "../../src/adapters/logging.ts";
import { createMetrics } from "../../src/adapters/metrics.ts";
import { watchEventLoop } from "../../src/commands/event_loop.ts";
import { createObserver } from "../../src/commands/observe.ts";
import { eventLoopTurn } from "../../src/commands/waiting.ts";
import { PlantStoreError } from "../../src/errors.ts";

const REQUEST = { requestId: "1", clientAddress: () => undefined };

test("a storage that does not respond in time is blamed, unless the event loop was blocked", async () => {
  const { log, logged } = memoryLog();
  const eventLoop = watchEventLoop(log);
  using _ = { [Symbol.dispose]: () => eventLoop.stop() };
  const observer = createObserver(
    { log, metrics: createMetrics(), tracing: undefined, eventLoop },
    { accessLog: false },
  );

  observer.onError(new PlantStoreError("storage_unavailable"), REQUEST);
  expect(logged.splice(0)).toEqual([["ERROR", "Storage unavailable"]]);

  // A look at the loop is due after half a second, and comes more than half a second late.
  Bun.sleepSync(1_200);
  while (logged.length === 0) await eventLoopTurn();
  expect(logged.splice(0)).toEqual([["WARN", "Event loop blocked"]]);

  observer.onError(new PlantStoreError("storage_unavailable"), REQUEST);
  expect(logged.splice(0)).toEqual([["WARN", "Request not handled in time: the event loop was blocked"]]);
  // With a cause the storage has refused: that is no matter of time.
  observer.onError(new PlantStoreError("storage_unavailable", undefined, { cause: "disk I/O error" }), REQUEST);
  expect(logged.splice(0)).toEqual([["ERROR", "Storage unavailable"]]);
});

/** A log, and the level and message of each of its lines. */
function memoryLog() {
  const logged: [level: string, message: string][] = [];
  const write = (line: string) => {
    const { level, message } = JSON.parse(line) as { level: string; message: string };
    logged.push([level, message]);
  };
  return { log: startLogging({ level: "info", format: "json", write }), logged };
}
