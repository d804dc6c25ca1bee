import { expect } from "bun:test";

import { run } from "../../src/commands/program.ts";
import type { Io } from "../../src/commands/terminal.ts";
import { streamOf } from "./stream.ts";

/**
 * Runs a command in this process: starting another costs more than all that it does. Every stream
 * can be replaced.
 */
export async function runCommand(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: Partial<Io> = {},
) {
  let stdout = "";
  let stderr = "";
  const { stderr: print = (text: string) => void (stderr += text) } = options;

  const exitCode = await run(
    args,
    { ...environment },
    {
      write: async (chunk) => void (stdout += chunk),
      stderr: print,
      printed: async () => {},
      // A server logs to stderr, too.
      log: { log: print, lostLines: () => 0 },
      stop: new AbortController().signal,
      onHangup: () => {},
      stdin: () => streamOf([]),
      isTerminal: false,
      settingsFile: undefined,
      hasColors: false,
      ...options,
    },
  );

  return { exitCode, stdout, stderr };
}

/** What `plant-store export` prints of a database, which it can read completely. */
export async function exported(path: string, ...args: string[]): Promise<string> {
  const { stdout, ...end } = await runCommand(["export", ...args], { DATABASE_URL: path });
  expect(end).toEqual({ exitCode: 0, stderr: "" });
  return stdout;
}
