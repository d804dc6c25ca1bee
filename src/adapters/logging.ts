import {
  configureSync,
  getAnsiColorFormatter,
  getJsonLinesFormatter,
  getLogger,
  getThrottlingFilter,
  type Logger,
  type LogRecord,
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

/** Sets up the process's log, and returns it. An error that comes a thousand times a second does not flood it. */
export function startLogging({ level, format, write }: LoggingOptions): Logger {
  const line = format === "json" ? getJsonLinesFormatter({ properties: "flatten" }) : pretty();
  const summary = { logger: getLogger(["plant-store", "summary"]) };
  const throttle = getThrottlingFilter({ limit: LOGGED_PER_WINDOW, windowMs: WINDOW_MS, key: kindOf, summary });
  const isRoutine = (record: LogRecord) => record.level === "debug" || record.level === "info";
  configureSync({
    reset: true,
    sinks: { stderr: (record) => write(line(record)) },
    filters: { throttle: (record) => isRoutine(record) || throttle(record) },
    loggers: [
      { category: "plant-store", sinks: ["stderr"], filters: ["throttle"], lowestLevel: level },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
  return getLogger("plant-store");
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
