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

/** From much to little. */
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

/** How many alike warnings and errors are logged in ten seconds; the others are counted. */
const ALIKE = 10;
const WINDOW_MS = 10_000;

/** Sets up the process's log, and gives it. What goes wrong a thousand times a second is told ten times in ten. */
export function startLogging({ level, format, write }: LoggingOptions): Logger {
  const line = format === "json" ? getJsonLinesFormatter({ properties: "flatten" }) : pretty();
  const summary = { logger: getLogger(["plant-store", "summary"]) };
  const throttle = getThrottlingFilter({ limit: ALIKE, windowMs: WINDOW_MS, summary });
  const isRoutine = ({ level: of }: LogRecord) => of === "debug" || of === "info";
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
