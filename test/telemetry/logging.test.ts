import { expect, test } from "bun:test";
import { stripVTControlCharacters } from "node:util";
import { watchEventLoop } from "../../src/telemetry/event_loop.ts";
import { eventLoopTurn } from "../../src/async/event_loop_turn.ts";
import { memoryLog } from "../support/memory_log.ts";

test.each(["warning", "error"] as const)(
  "of a flood ten lines are written, and the others are counted at the end, even with the level %s",
  (level) => {
    const memory = memoryLog({ level });
    for (let i = 0; i < 50; i++) memory.log.error("Storage unavailable", { requestId: i });
    memory[Symbol.dispose]();
    const ten = Array.from({ length: 10 }, (_, requestId) => ({
      level: "ERROR",
      message: "Storage unavailable",
      requestId,
    }));
    const rest = { level: "ERROR", message: "Suppressed 40 more lines: Storage unavailable", suppressed: 40 };
    expect(memory.lines).toEqual([...ten, rest]);
  },
);

test("a flood for one reason does not hide another one, and access is always logged", () => {
  const memory = memoryLog();
  for (let i = 0; i < 50; i++) {
    memory.log.warning("Refused credentials", { reason: "unknown" });
    memory.log.info("Request completed", { requestId: i });
  }
  memory.log.warning("Refused credentials", { reason: "revoked" });
  memory[Symbol.dispose]();
  const { lines } = memory;
  expect(lines.filter(({ reason }) => reason === "unknown")).toHaveLength(11);
  expect(lines.filter(({ reason }) => reason === "revoked")).toHaveLength(1);
  expect(lines.filter(({ message }) => message === "Request completed")).toHaveLength(50);
  expect(lines.at(-1)).toMatchObject({ level: "WARN", reason: "unknown", suppressed: 40 });
});

test("a property that is a function is called only for a line that is written", () => {
  using memory = memoryLog();
  let calls = 0;
  for (let i = 0; i < 50; i++) memory.log.warning("Refused credentials", { client: () => `client ${++calls}` });
  expect(memory.lines.map(({ client }) => client)).toEqual(Array.from({ length: 10 }, (_, i) => `client ${i + 1}`));
  expect(calls).toBe(10);
});

test("for people, a line has its properties behind the message, except those without a value", () => {
  let text = "";
  using memory = memoryLog({ format: "pretty", write: (line) => (text += stripVTControlCharacters(line)) });
  memory.log.info("Configuration in force", { port: 0, tls: undefined, origins: "", database: { path: "plants.db" } });
  expect(text).toMatch(/^[\d:.]+ INF Configuration in force port=0 database=\{ path: "plants.db" \}\n$/);
});

test("a blocked event loop is logged, with how long", async () => {
  using memory = memoryLog();
  const watch = watchEventLoop(memory.log);
  // A look at the loop is due after half a second, and comes more than half a second late.
  Bun.sleepSync(1_200);
  while (memory.lines.length === 0) await eventLoopTurn();
  watch.stop();
  expect(memory.lines).toEqual([{ level: "WARN", message: "Event loop blocked", delayMs: expect.any(Number) }]);
  expect(memory.lines[0]?.["delayMs"]).toBeWithin(500, 60_000);
});
