#!/usr/bin/env bun
import { run } from "./commands/program.ts";

const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) {
  process.on(signal, () => {
    // The first signal asks, the second one insists.
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  });
}
// The terminal is gone, unless a server takes it as the wish to read its certificates again.
let onHangup = () => stop.abort();
process.on("SIGHUP", () => onHangup());
// They would end the process at once, and with it what was accepted.
for (const signal of ["SIGUSR1", "SIGUSR2"] as const) process.on(signal, () => {});

// A write that fails says so to its own callback, and to everybody: without a listener that would be a crash. On
// standard error there is nobody left to tell.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

process.exitCode = await run(process.argv.slice(2), process.env, {
  stderr: (text) => void process.stderr.write(text),
  stop: stop.signal,
  onHangup: (listener) => (onHangup = listener),
  write: (chunk) =>
    new Promise((resolve, reject) => process.stdout.write(chunk, (error) => (error ? reject(error) : resolve()))),
  stdin: () => Bun.stdin.stream(),
  isTerminal: process.stderr.isTTY === true,
});

// Whatever still holds the event loop is not waited for: a Worker whose disk hangs, say.
setTimeout(() => process.exit(), 100).unref();
