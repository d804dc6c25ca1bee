import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { stripVTControlCharacters } from "node:util";

import { memoryLog } from "../support/memory_log.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

test.each(["warn", "error"] as const)(
  "ten lines of a flood are written, and the others are counted at the end, even with the level %s",
  (level) => {
    const memory = memoryLog({ level });
    for (let i = 0; i < 50; i++) memory.log.error("Storage unavailable", { requestId: i });
    memory[Symbol.dispose]();
    const ten = Array.from({ length: 10 }, (_, requestId) => ({
      level: "ERROR",
      message: "Storage unavailable",
      requestId,
    }));
    const rest = {
      level: "ERROR",
      message: "Suppressed 40 more lines: Storage unavailable",
      suppressed: 40,
    };
    expect(memory.lines).toEqual([...ten, rest]);
  },
);

test("every ten seconds the suppressed lines are counted, and ten more are written", () => {
  using memory = memoryLog();
  for (const count of [12, 12, 1]) {
    for (let i = 0; i < count; i++) memory.log.error("Storage unavailable");
    jest.advanceTimersByTime(10_000);
  }
  const written = memory.lines.map(({ suppressed }) => suppressed);
  expect(written).toEqual([...Array(10), 2, ...Array(10), 2, undefined]);
});

test("for people, a line has its properties behind the message, except those without a value", () => {
  let text = "";
  using memory = memoryLog({
    format: "pretty",
    output: { log: (line) => (text += stripVTControlCharacters(line)), lostLines: () => 0 },
  });
  memory.log.info("Configuration in force", {
    port: 0,
    tls: undefined,
    origins: "",
    database: { adapter: "postgres", hosts: ["db1:5432"], sslmode: undefined },
  });

  expect(text).toMatch(
    /^[\d:.]+ INF Configuration in force port=0 database\.adapter="postgres" database\.hosts=\[ "db1:5432" \]\n$/,
  );
});

test("for people, no property looks like another one, ends the line or moves the cursor", () => {
  let text = "";
  const output = { log: (line: string) => (text += line), lostLines: () => 0 };
  using memory = memoryLog({ format: "pretty", output });
  const forged = '1" cause=disk\n12:00:00.000 ERR Storage unavailable \u001b[2J\u009b\u202e';
  memory.log.info("Request completed", { subject: forged, path: "/plants" });
  memory.log.error("Internal error", { cause: new Error(forged) });

  const [access, error, ...stack] = text.trimEnd().split("\n");
  const quoted = String.raw`1\" cause=disk\n12:00:00.000 ERR Storage unavailable \u001b[2J\u{9b}\u{202e}`;
  expect(access).toEndWith(` Request completed subject="${quoted}" path="/plants"`);
  expect(error).toMatch(/^[\d:.]+ ERR Internal error cause=/);
  expect(stack.join("\n")).toContain("12:00:00.000 ERR Storage unavailable");
  expect(stack.filter((line) => !line.startsWith("    "))).toEqual([]);
  expect(text).not.toMatch(/[^\P{C}\n]/u);
});

test.each(["json", "pretty"] as const)("a message is written as it is, in %s", (format) => {
  let text = "";
  const output = { log: (line: string) => (text += line), lostLines: () => 0 };
  using memory = memoryLog({ format, output });
  memory.log.warning("Created an empty database: /srv/{env}/{{plants}}.db", { env: "other" });
  expect(text).toContain("Created an empty database: /srv/{env}/{{plants}}.db");
});

test("for people, no message ends the line or moves the cursor", () => {
  let text = "";
  const output = { log: (line: string) => (text += line), lostLines: () => 0 };
  using memory = memoryLog({ format: "pretty", output });
  memory.log.warning("Created an empty database: /srv/a\n12:00:00.000 ERR \u001b[2Jb.db");
  expect(text).toEndWith(String.raw`: /srv/a\u{a}12:00:00.000 ERR \u{1b}[2Jb.db` + "\n");
});

test.each<[string, unknown, object]>([
  ["a text", "disk full", { message: "disk full" }],
  ["an error", new TypeError("disk full"), { name: "TypeError", message: "disk full" }],
  [
    "an error of SQLite",
    Object.assign(new Error("disk full"), { code: "SQLITE_FULL", errno: 13, byteOffset: -1 }),
    { name: "Error", message: "disk full", code: "SQLITE_FULL" },
  ],
  [
    "an error whose code is a number",
    new DOMException("too slow", "TimeoutError"),
    { name: "TimeoutError", message: "too slow", code: "23" },
  ],
  [
    "an error with a cause",
    new Error("storage is gone", { cause: "disk full" }),
    { name: "Error", message: "storage is gone", cause: { message: "disk full" } },
  ],
])("in JSON, a cause is an object of the same texts: %s", (_, cause, expected) => {
  using memory = memoryLog();
  memory.log.error("Storage unavailable", { cause, requestId: "1" });

  const [line] = memory.lines;
  // Bun gives a DOMException none.
  const hasStack = cause instanceof Error && !(cause instanceof DOMException);
  const stack = hasStack ? { stack: expect.stringContaining(cause.message) } : {};
  expect(line?.["cause"]).toEqual({ ...expected, ...stack });
  expect(line).toMatchObject({ level: "ERROR", message: "Storage unavailable", requestId: "1" });
});

test.each(["json", "pretty"] as const)(
  "errors that are each other's cause are logged once each, in %s",
  (format) => {
    let text = "";
    const output = { log: (line: string) => (text += line), lostLines: () => 0 };
    using memory = memoryLog({ format, output });
    const inner = new Error("disk full");
    inner.cause = new Error("storage is gone", { cause: inner });
    memory.log.error("Internal error", { cause: inner.cause });

    expect(text).toContain("Internal error");
    expect(text).toContain("storage is gone");
    expect(text).toContain("disk full");
  },
);

test("in JSON, characters that move or hide text are escaped, and are the same to a parser", () => {
  let text = "";
  const output = { log: (line: string) => (text += line), lostLines: () => 0 };
  using memory = memoryLog({ output });
  const subject = "gardener\u202e\u2066\u009b\u200b\u{e0041}\ud800🌿";
  memory.log.info("Request completed", { subject });

  expect(text).not.toMatch(/[^\P{C}\n]/u);
  expect(text).toContain("gardener\\u202e\\u2066\\u009b\\u200b\\udb40\\udc41\\ud800🌿");
  expect(JSON.parse(text).subject).toBe(subject);
});
