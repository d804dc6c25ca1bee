import { type LoggingOptions, startLogging } from "../../src/telemetry/logging.ts";

/** A line of the log in JSON, without its time. */
export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly [property: string]: unknown;
}

/** A log, and the lines written to it so far. */
export function memoryLog(options: Partial<LoggingOptions> = {}) {
  const lines: LogLine[] = [];
  const write = (line: string) => {
    const { "@timestamp": _time, logger: _logger, ...rest } = JSON.parse(line);
    lines.push(rest);
  };
  const logging = startLogging({ level: "info", format: "json", colors: false, write, ...options });
  return { ...logging, lines };
}
