import { type LoggingOptions, type LogOutput, startLogging } from "../../src/telemetry/logging.ts";

/** A line of the log in JSON, without its time. */
export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly [property: string]: unknown;
}

/** A log, and the lines written to it so far. */
export function memoryLog(options: Partial<LoggingOptions> = {}) {
  const lines: LogLine[] = [];
  const output: LogOutput = {
    log(line) {
      const { "@timestamp": _time, logger: _logger, ...rest } = JSON.parse(line);
      lines.push(rest);
    },
    lostLines: () => 0,
  };
  const level = "info";
  const logging = startLogging({ level, format: "json", colors: false, output, ...options });
  return { ...logging, lines };
}
