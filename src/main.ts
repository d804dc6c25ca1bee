#!/usr/bin/env bun
import { run } from "./commands/program.ts";

const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    // The first signal asks, the second one insists.
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  });
}

// A write that fails says so to its own callback, and to everybody: without a listener that would be a crash.
process.stdout.on("error", () => {});

process.exitCode = await run(process.argv.slice(2), process.env, {
  stdout: (text) => void process.stdout.write(text),
  stderr: (text) => void process.stderr.write(text),
  stop: stop.signal,
  write: (chunk) =>
    new Promise((resolve, reject) => process.stdout.write(chunk, (error) => (error ? reject(error) : resolve()))),
  stdin: () => Bun.stdin.stream(),
  isTerminal: process.stderr.isTTY === true,
});

// Whatever still holds the event loop is not waited for: a Worker whose disk hangs, say.
setTimeout(() => process.exit(), 100).unref();
