import {
  configureSync,
  getAnsiColorFormatter,
  getJsonLinesFormatter,
  getLogger,
  getThrottlingFilter,
  type Logger,
  type LogRecord,
  type ThrottlingFilterSummary,
  type TextFormatter,
} from "@logtape/logtape";

/** From the most lines to the fewest. */
export const LOG_LEVELS = ["debug", "info", "warning", "error"] as const;
/** One of {@linkcode LOG_LEVELS}. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** For people, or one JSON object a line. */
export const LOG_FORMATS = ["pretty", "json"] as const;
/** One of {@linkcode LOG_FORMATS}. */
export type LogFormat = (typeof LOG_FORMATS)[number];

/** What to log, and how. */
export interface LoggingOptions {
  readonly level: LogLevel;
  readonly format: LogFormat;
  /** Takes what is logged, line by line. */
  readonly write: (line: string) => void;
}

/** How many warnings and errors of the same text and reason are logged in each window; the others are counted. */
const LOGGED_PER_WINDOW = 10;
const WINDOW_MS = 10_000;

/** The process's log. */
export interface Log {
  readonly log: Logger;
  /** Logs what many requests may cause in a second: where the throttle drops the line, it costs little. */
  readonly logThrottled: LogThrottled;
}

/**
 * @param message What is logged; the throttle counts it together with the reason.
 * @param properties Gives the other properties. A function, because it is called only for what is logged.
 */
export type LogThrottled = (
  level: "warning" | "error",
  message: string,
  properties: () => Record<string, unknown>,
  reason?: string,
) => void;

/**
 * Sets up the process's log, and returns it. An error that comes a thousand times a second does not flood it: what was
 * dropped is counted every ten seconds, and at the end of the log's scope.
 */
export function startLogging({ level, format, write }: LoggingOptions): Log & Disposable {
  const line = format === "json" ? getJsonLinesFormatter({ properties: "flatten" }) : pretty();
  const summary = { logger: getLogger(["plant-store", "summary"]), level: levelOf };
  const throttle = getThrottlingFilter({ limit: LOGGED_PER_WINDOW, windowMs: WINDOW_MS, key: kindOf, summary });
  const isRoutine = (record: LogRecord) => record.level === "debug" || record.level === "info";
  configureSync({
    reset: true,
    sinks: { stderr: (record) => write(line(record)) },
    filters: { throttle: (record) => isRoutine(record) || ADMITTED in record.properties || throttle(record) },
    loggers: [
      { category: "plant-store", sinks: ["stderr"], filters: ["throttle"], lowestLevel: level },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
  const log = getLogger("plant-store");
  const count = () => throttle[Symbol.dispose]();
  // By itself the throttle counts when the next one of the same kind comes, which may be never.
  const timer = setInterval(count, WINDOW_MS).unref();
  const stop = () => {
    clearInterval(timer);
    count();
  };
  return { log, logThrottled: throttled(log, throttle), [Symbol.dispose]: stop };
}

/** As severe as what was dropped: otherwise the level in force would drop it, too. */
function levelOf({ lastRecord }: ThrottlingFilterSummary): LogRecord["level"] {
  return lastRecord.level;
}

/** Marks the properties of a line that the throttle has let through. */
const ADMITTED = Symbol("admitted");

/** Looking the properties up and making a record costs as much as refusing a request: the throttle is asked before. */
function throttled(log: Logger, throttle: (record: LogRecord) => boolean): LogThrottled {
  return (level, message, properties, reason) => {
    const known = reason === undefined ? {} : { reason };
    const { category } = log;
    const record = {
      category,
      level,
      message: [message],
      rawMessage: message,
      timestamp: Date.now(),
      properties: known,
    };
    if (!throttle(record)) return;
    log.emit({ ...record, properties: Object.assign({ [ADMITTED]: true }, known, properties()) });
  };
}

/** A flood of unknown tokens does not hide a revoked one, which is refused for another reason. */
function kindOf({ level, rawMessage, properties }: LogRecord): string {
  return `${level} ${String(rawMessage)} ${String(properties["reason"])}`;
}

/** The message, and the properties behind it: LogTape's own format for people leaves them out. */
function pretty(): TextFormatter {
  return getAnsiColorFormatter({
    timestamp: "time",
    format: ({ timestamp, level, message, record }) =>
      `${timestamp} ${level} ${message}${Object.entries(record.properties).map(property).join("")}`,
  });
}

function property([name, value]: [string, unknown]): string {
  return ` ${name}=${typeof value === "object" ? Bun.inspect(value, { compact: true }) : String(value)}`;
}
