import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { emptyDirectory } from "../support/program.ts";
import type { GeneratorResult } from "./load.ts";
import { rawRequest } from "./requests.ts";

/** A signal ends the load, and that the rest: what is in use is gone at the end of its scope. */
export const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => stop.abort());

/** The generator that is used: wrk where it is installed. */
export const GENERATOR = Bun.which("wrk") === null ? "the bundled generator, because wrk is not installed" : "wrk";

/** How to load a server. */
export interface LoadOptions {
  readonly connections: number;
  readonly seconds: number;
  /** @default "ascending" */
  readonly ids?: "ascending" | "random";
  /** See {@linkcode rawRequest}. @default a plant of its own id each */
  readonly request?: string;
  /** The status of every response. @default 200 */
  readonly status?: number;
}

/** Each load begins above the ids of those before it. */
let loads = 0;

/**
 * Sends one request over and over on keep-alive connections.
 *
 * @throws {Error} If a connection fails, or a response has another status; wrk only tells those from 400 on from others.
 */
export async function runLoad(url: string, options: LoadOptions): Promise<GeneratorResult> {
  const { request = rawRequest(), status = 200 } = options;
  stop.signal.throwIfAborted();
  using directory = emptyDirectory();
  const file = join(directory.path, "request");
  writeFileSync(file, request);
  const first = 1e15 + 1e11 * ++loads;
  const child = Bun.spawn(commandLine(url, file, first, options), {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    signal: stop.signal,
  });
  const output = await new Response(child.stdout).text();
  stop.signal.throwIfAborted();
  if ((await child.exited) !== 0) throw new Error(`The load on ${url} ended early:\n${output}`);
  const result = JSON.parse(output.trimEnd().split("\n").at(-1) ?? "") as GeneratorResult;
  const expected = status < 400 ? 0 : result.responses;
  if (result.broken > 0 || result.refused !== expected || result.responses === 0) {
    throw new Error(`Expected status ${status} for every request, got ${JSON.stringify(result)}`);
  }
  return result;
}

function commandLine(url: string, request: string, first: number, options: LoadOptions): string[] {
  const { connections, seconds, ids = "ascending", status = 200 } = options;
  const wrk = Bun.which("wrk");
  if (wrk !== null) {
    const load = ["-t1", `-c${connections}`, `-d${Math.ceil(seconds)}s`, "--timeout", "30s"];
    const script = [request, ids, String(first)];
    return [wrk, ...load, "-s", join(import.meta.dir, "wrk.lua"), url, "--", ...script];
  }
  const flags = { url, connections, seconds, ids, first, request, status };
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  return [process.execPath, join(import.meta.dir, "load.ts"), ...args];
}
