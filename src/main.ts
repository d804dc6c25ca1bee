#!/usr/bin/env bun
import { dirname } from "node:path";
import { isatty } from "node:tty";

import { withAbort } from "./async/timers.ts";
import { Output } from "./commands/output.ts";
import { run } from "./commands/program.ts";

/** How long to wait for the reader of stderr after a signal or a bug, in milliseconds. */
const LAST_WORDS_MS = 3_000;

/**
 * How long pending work, such as a write to a hanging disk, may delay the exit, in milliseconds.
 */
const EXIT_MS = 100;

/**
 * Signals within this time count as one press of Ctrl-C, in milliseconds. The terminal signals
 * every process, and npx and `bun run` forward the signal again.
 */
const SAME_PRESS_MS = 500;

const stop = new AbortController();
let stoppedAt = 0;
function requestStop(): void {
  if (stop.signal.aborted) return;
  stoppedAt = performance.now();
  stop.abort();
}

for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) {
  process.on(signal, () => {
    // The first signal stops gracefully, the second one at once.
    if (stop.signal.aborted && performance.now() - stoppedAt > SAME_PRESS_MS) process.exit(1);
    requestStop();
  });
}

const isTerminal = isatty(2);

// SIGHUP means that the terminal was closed. Under nohup, stderr is not one. A server with HTTPS
// sets its own listener.
let onHangup = isTerminal ? requestStop : () => {};
process.on("SIGHUP", () => onHangup());

// Without a listener they end the process at once, and requests in flight get no response.
for (const signal of ["SIGUSR1", "SIGUSR2"] as const) process.on(signal, () => {});

const stdout = new Output(1);
const stderr = new Output(2);

// While a command runs, Bun would only print such an error and continue.
for (const event of ["uncaughtException", "unhandledRejection"] as const) {
  process.on(event, (error: unknown) => {
    stderr.print(`${Bun.inspect(error)}\n`);
    void stderr.drain(LAST_WORDS_MS).then(() => process.exit(1));
  });
}

/** Whether a package installed the executable, which then reads its settings file in `/etc`. */
const isInstalled =
  Bun.main.startsWith("/$bunfs/") &&
  ["/usr/bin", "/usr/local/bin"].includes(dirname(process.execPath));

process.exitCode = await run(process.argv.slice(2), process.env, {
  write: (chunk) => stdout.write(chunk),
  stderr: (text) => stderr.print(text),
  printed: (limitMs = Number.POSITIVE_INFINITY) => stderr.drain(limitMs - EXIT_MS),
  log: stderr,
  stop: stop.signal,
  onHangup: (listener) => (onHangup = listener),
  settingsFile: isInstalled ? "/etc/plant-store/plant-store.env" : undefined,
  stdin: () => Bun.stdin.stream(),
  isTerminal,
  hasColors: isTerminal && process.env["TERM"] !== "dumb" && !process.env["NO_COLOR"],
});
await withAbort(stderr.drain(), stop.signal);
await stderr.drain(LAST_WORDS_MS);

setTimeout(() => process.exit(), EXIT_MS).unref();
