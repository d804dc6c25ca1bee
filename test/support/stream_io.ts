import { expect } from "bun:test";
import type { Io } from "../../src/commands/output.ts";
import { run } from "../../src/commands/program.ts";
import { streamOf } from "./stream.ts";

/** Streams that keep what is written to them; every part can be replaced. */
export function streamIo(options: Partial<Io> = {}) {
  const chunks: string[] = [];
  let errors = "";
  const io: Io = {
    write: async (chunk) => void chunks.push(chunk),
    stderr: (text) => void (errors += text),
    stop: new AbortController().signal,
    onHangup: () => {},
    stdin: () => streamOf([]),
    isTerminal: false,
    isAnsi: false,
    hasColors: false,
    ...options,
  };
  return {
    io,
    /** What was written, piece by piece. */
    chunks,
    /** What was written. */
    output: () => chunks.join(""),
    /** What was written to stderr: messages for people. */
    stderr: () => errors,
  };
}

/** Runs a command in this process: starting another costs more than all that it does. */
export async function runCommand(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: Partial<Io> = {},
) {
  const { io, output, stderr } = streamIo(options);
  const exitCode = await run(args, environment, io);
  return { exitCode, stdout: output(), stderr: stderr() };
}

/** What `plant-store export` prints of a database, which it can read completely. */
export async function exported(path: string, ...args: string[]): Promise<string> {
  const { stdout, ...end } = await runCommand(["export", ...args], { DATABASE_URL: path });
  expect(end).toEqual({ exitCode: 0, stderr: "" });
  return stdout;
}
