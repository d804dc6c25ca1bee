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
// The terminal was closed, which `nohup` ignores; or a server takes it as a request to read its certificates again.
let onHangup = isHangupIgnored() ? () => {} : () => stop.abort();
process.on("SIGHUP", () => onHangup());
// Without a listener they end the process at once, and what was accepted has no response.
for (const signal of ["SIGUSR1", "SIGUSR2"] as const) process.on(signal, () => {});

// A write that fails is reported to its own callback and as an event: without a listener the event is a crash. For
// standard error there is no other place to report to.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

const isTerminal = process.stderr.isTTY === true;
const isAnsi = isTerminal && process.env["TERM"] !== "dumb";

process.exitCode = await run(process.argv.slice(2), process.env, {
  stderr: (text) => void process.stderr.write(text),
  stop: stop.signal,
  onHangup: (listener) => (onHangup = listener),
  write: (chunk) =>
    new Promise((resolve, reject) => process.stdout.write(chunk, (error) => (error ? reject(error) : resolve()))),
  stdin: () => Bun.stdin.stream(),
  isTerminal,
  isAnsi,
  hasColors: isAnsi && !process.env["NO_COLOR"],
});

// The process does not wait for what still holds the event loop, such as a Worker whose disk hangs.
setTimeout(() => process.exit(), 100).unref();

/** Whether the program was started with SIGHUP ignored, as by `nohup`. Only Linux says so (proc(5), `SigIgn`). */
function isHangupIgnored(): boolean {
  try {
    // A bit per signal, the lowest one for SIGHUP.
    return /^SigIgn:.*[13579bdf]$/m.test(readFileSync("/proc/self/status", "latin1"));
  } catch {
    return false;
  }
}
