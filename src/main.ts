#!/usr/bin/env bun
import { readFileSync } from "node:fs";

import { run } from "./commands/program.ts";

const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) {
  process.on(signal, () => {
    // The first signal stops gracefully, the second one at once.
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  });
}

// The terminal was closed, which `nohup` ignores. A server with TLS reloads its certificate
// instead.
let onHangup = isHangupIgnored() ? () => {} : () => stop.abort();
process.on("SIGHUP", () => onHangup());

// Without a listener they end the process at once, and requests in flight get no response.
for (const signal of ["SIGUSR1", "SIGUSR2"] as const) process.on(signal, () => {});

// A failed write also emits an event, which crashes the process without a listener.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

const isTerminal = process.stderr.isTTY === true;
const isAnsi = isTerminal && process.env["TERM"] !== "dumb";

process.exitCode = await run(process.argv.slice(2), process.env, {
  stderr: (text) => void process.stderr.write(text),
  stop: stop.signal,
  onHangup: (listener) => (onHangup = listener),
  write: (chunk) =>
    new Promise((resolve, reject) =>
      process.stdout.write(chunk, (error) => (error ? reject(error) : resolve())),
    ),
  stdin: () => Bun.stdin.stream(),
  isTerminal,
  isAnsi,
  hasColors: isAnsi && !process.env["NO_COLOR"],
});

// Does not wait for what keeps the event loop alive, such as a Worker whose disk hangs.
setTimeout(() => process.exit(), 100).unref();

/**
 * Whether the program was started with SIGHUP ignored, as `nohup` does. Only Linux tells (proc(5),
 * `SigIgn`).
 */
function isHangupIgnored(): boolean {
  try {
    // One bit for each signal. The lowest is SIGHUP's.
    return /^SigIgn:.*[13579bdf]$/m.test(readFileSync("/proc/self/status", "latin1"));
  } catch {
    return false;
  }
}
