import {
  configureSync,
  getAnsiColorFormatter,
  getJsonLinesFormatter,
  getLogger,
  getTextFormatter,
  type LogRecord,
  type TextFormatter,
} from "@logtape/logtape";

import { escapeControls } from "../errors.ts";

/** The destination of the log. */
export interface LogOutput {
  /**
   * Writes a line without waiting. Never throws: a line that cannot be written is lost.
   *
   * @param lostLine Returns the line that replaces lost lines, and has their number.
   */
  log(line: string, lostLine: (lost: number) => string): void;
  /** Returns the total number of lost lines. */
  lostLines(): number;
}

/** Options of {@linkcode startLogging}. */
export interface LoggingOptions {
  /** The lowest level to log, in the words of the lines: LogTape's `warning` is `WARN` there. */
  readonly level: "info" | "warn" | "error";
  /** `pretty` for people, or `json` for one object a line. */
  readonly format: "pretty" | "json";
  /** Whether the format for people has colors. */
  readonly colors: boolean;
  readonly output: LogOutput;
}

/** The log of the process. Disposing of it logs how many lines it suppressed. */
export type Logging = ReturnType<typeof startLogging>;

/** How many warnings and errors with the same message and reason are written in a window. */
const WRITTEN_PER_WINDOW = 10;
const WINDOW_MS = 10_000;

/**
 * Starts the log of the process. Counts warnings and errors by message and reason. So an error that
 * occurs a thousand times a second does not flood the log, and many unknown tokens do not hide a
 * revoked one.
 */
export function startLogging({ level, format, colors, output }: LoggingOptions) {
  const log = getLogger("plant-store");
  /** The lines of this window by kind: the first one, and their number. */
  const kinds = new Map<string, { readonly record: LogRecord; count: number }>();

  function admits(record: LogRecord): boolean {
    const { level, rawMessage, properties } = record;
    if (level === "debug" || level === "info") return true;

    const kind = kindOf(level, String(rawMessage), properties["reason"]);
    const counter = kinds.getOrInsertComputed(kind, () => ({ record, count: 0 }));
    counter.count++;
    return counter.count <= WRITTEN_PER_WINDOW;
  }

  /** Logs how many lines were suppressed. */
  function endWindow(): void {
    const ended = [...kinds.values()];
    kinds.clear();

    for (const { record, count } of ended) {
      const suppressed = count - WRITTEN_PER_WINDOW;
      if (suppressed <= 0 || (record.level !== "warning" && record.level !== "error")) continue;
      const message = `Suppressed ${suppressed} more lines: ${String(record.rawMessage)}`;
      log[record.level](message, { suppressed, reason: record.properties["reason"] });
    }
  }

  const line = format === "json" ? json() : pretty(colors);
  const lowestLevel = level === "warn" ? "warning" : level;
  const lostLine = (lost: number) => line(lostRecord(lost));

  configureSync({
    reset: true,
    sinks: { stderr: (record) => output.log(line(record), lostLine) },
    filters: { throttle: admits },
    loggers: [
      { category: "plant-store", sinks: ["stderr"], filters: ["throttle"], lowestLevel },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
  const timer = setInterval(endWindow, WINDOW_MS).unref();

  return {
    log,
    /**
     * Counts a line that the throttle would suppress, and returns true. Call it before a line that
     * many requests a second may cause: making the line costs a tenth of a refused request.
     */
    suppresses(level: "warning" | "error", message: string, reason?: string): boolean {
      const kind = kinds.get(kindOf(level, message, reason));
      if (kind === undefined || kind.count < WRITTEN_PER_WINDOW) return false;
      kind.count++;
      return true;
    },

    [Symbol.dispose]() {
      clearInterval(timer);
      endWindow();
    },
  };
}

/** Returns the key that groups lines, without the details after the colon of a reason. */
function kindOf(level: string, message: string, reason: unknown): string {
  return `${level} ${message} ${String(reason).split(": ", 1)[0]}`;
}

function lostRecord(lost: number): LogRecord {
  const message = `Lost ${lost} lines of the log: stderr did not take them`;
  return {
    category: ["plant-store"],
    level: "warning",
    message: [message],
    rawMessage: message,
    timestamp: Date.now(),
    properties: { lost },
  };
}

/**
 * Formats lines as JSON. A cause always has the same shape, because log stores refuse a field of
 * two types.
 */
function json(): TextFormatter {
  const line = getJsonLinesFormatter({ message: "template", properties: "flatten" });
  return (record) => {
    const { cause } = record.properties;
    if (cause === undefined) return escapedJson(line(record));
    const properties = { ...record.properties, cause: factsOf(cause) };
    return escapedJson(line({ ...record, properties }));
  };
}

/**
 * Escapes characters that JSON permits but a terminal obeys, such as U+202E, which reverses text.
 */
function escapedJson(line: string): string {
  // JSON escapes the UTF-16 code units of a character.
  const escapeUnit = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return line.replace(/[^\P{C}\n]/gu, (character) => character.split("").map(escapeUnit).join(""));
}

/**
 * Returns the texts of an error, and the facts of its cause, unless the cause is one of the outer
 * errors.
 */
function factsOf(error: unknown, outer: readonly unknown[] = []): Record<string, unknown> {
  if (!(error instanceof Error)) return { message: String(error) };

  const { name, message, code, stack, cause } = error as NodeJS.ErrnoException;
  const errors = [...outer, error];
  return {
    name,
    message,
    // A DOMException has a number.
    code: code === undefined ? undefined : String(code),
    stack,
    cause: cause === undefined || errors.includes(cause) ? undefined : factsOf(cause, errors),
  };
}

/**
 * Formats lines for people, with the properties, which LogTape's own format omits. A message is not
 * a template: it may have a path with braces.
 */
function pretty(colors: boolean): TextFormatter {
  return (colors ? getAnsiColorFormatter : getTextFormatter)({
    timestamp: "time",
    format: ({ timestamp, level, record }) =>
      `${timestamp} ${level} ${escapeControls(String(record.rawMessage))}${Object.entries(record.properties).map(property).join("")}`,
  });
}

/**
 * Formats a property. Quotes strings and indents stacks, so that a client's text cannot look like a
 * line of the log.
 */
function property([name, value]: [string, unknown]): string {
  if (value === undefined || value === "") return "";
  if (typeof value === "string") return ` ${name}=${escapeControls(JSON.stringify(value))}`;

  if (isRecord(value))
    return Object.entries(value)
      .map(([member, of]) => property([`${name}.${member}`, of]))
      .join("");

  const text = typeof value === "object" ? Bun.inspect(value, { compact: true }) : String(value);
  return ` ${name}=${text.split("\n").map(escapeControls).join("\n    ")}`;
}

/** Whether a value is an object of facts, and neither an error nor a list. */
function isRecord(value: unknown): value is Record<string, unknown> {
  return value instanceof Object && Object.getPrototypeOf(value) === Object.prototype;
}
