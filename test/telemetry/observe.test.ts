import { expect, test } from "bun:test";
import { type LogLevel, startLogging } from "../../src/telemetry/logging.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { watchEventLoop } from "../../src/telemetry/event_loop.ts";
import { createObserver } from "../../src/telemetry/observe.ts";
import { eventLoopTurn } from "../../src/async/event_loop_turn.ts";
import { PlantStoreError } from "../../src/errors.ts";

const REQUEST = { requestId: "1", clientAddress: () => undefined };

test("a storage that does not respond in time is blamed, unless the event loop was blocked", async () => {
  using memory = memoryLog();
  const { logging, logged } = memory;
  const eventLoop = watchEventLoop(logging.log);
  using _ = { [Symbol.dispose]: () => eventLoop.stop() };
  const observer = createObserver(
    { ...logging, metrics: createMetrics(), tracing: undefined, eventLoop },
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

test("a flood of refused credentials is logged ten times, and only for those lines a client is looked up", () => {
  using memory = memoryLog();
  const { logging, logged } = memory;
  const eventLoop = { wasBlocked: () => false };
  const observer = createObserver(
    { ...logging, metrics: createMetrics(), tracing: undefined, eventLoop },
    { accessLog: false },
  );
  let lookups = 0;
  const clientAddress = () => String(++lookups);
  for (let i = 0; i < 50; i++) {
    observer.onError(new PlantStoreError("missing_credentials"), { requestId: "1", clientAddress });
  }
  expect(logged).toEqual(Array.from({ length: 10 }, () => ["WARN", "Refused credentials"]));
  expect(lookups).toBe(10);
});

test.each(["warning", "error"] as const)(
  "at the end of the log the lines that the throttle dropped are counted, with the level %s, too",
  (level) => {
    const { logging, logged } = memoryLog(level);
    for (let i = 0; i < 50; i++) logging.logThrottled("error", "Storage unavailable", () => ({}));
    logging[Symbol.dispose]();
    const ten = Array.from({ length: 10 }, () => ["ERROR", "Storage unavailable"]);
    expect(logged).toEqual([...ten, ["ERROR", "Last log message was suppressed 40 times."]] as typeof logged);
  },
);

/** A log, and the level and message of each of its lines. */
function memoryLog(level: LogLevel = "info") {
  const logged: [level: string, message: string][] = [];
  const write = (line: string) => {
    const { level, message } = JSON.parse(line) as { level: string; message: string };
    logged.push([level, message]);
  };
  const logging = startLogging({ level, format: "json", write });
  return { logging, logged, [Symbol.dispose]: () => logging[Symbol.dispose]() };
}
