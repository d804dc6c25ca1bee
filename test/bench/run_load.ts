import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { postBytes } from "../support/load.ts";
import { membersOf } from "../support/plants.ts";
import { emptyDirectory } from "../support/program.ts";
import { MONSTERA } from "./prefilled.ts";

/**
 * A plant; `wrk.lua` puts an id of its own in the place of the 16 zeros, so that every request has
 * the same length.
 */
export const PLANT = `{"id":${"0".repeat(16)},${membersOf(MONSTERA)}}`;

/** A signal ends the load, and that the rest: what is in use is gone at the end of its scope. */
export const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => stop.abort());

/** What wrk counted, as `wrk.lua` prints it. */
export interface LoadResult {
  readonly responses: number;
  /** Those of a status from 400 on. */
  readonly refused: number;
  /** Connections that failed. */
  readonly broken: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
  /** The longest wait of one request. */
  readonly maxMs: number;
}

/** How to load a server. */
export interface LoadOptions {
  readonly connections: number;
  readonly seconds: number;
  /** @default "ascending" */
  readonly ids?: "ascending" | "random";
  /** Its bytes. @default a good one of {@linkcode PLANT} */
  readonly request?: string;
  /** The status of every response. @default 200 */
  readonly status?: number;
}

/** Each load begins above the ids of those before it. */
let loads = 0;

/**
 * Sends one request over and over on keep-alive connections.
 *
 * @throws {Error} If wrk is not installed, a connection fails, or a response has another status:
 *   wrk tells those from 400 on from others.
 */
export async function runLoad(
  url: string,
  {
    connections,
    seconds,
    ids = "ascending",
    request = postBytes(PLANT),
    status = 200,
  }: LoadOptions,
): Promise<LoadResult> {
  stop.signal.throwIfAborted();
  using directory = emptyDirectory();
  const file = join(directory.path, "request");
  writeFileSync(file, request);

  const first = 1e15 + 1e11 * ++loads;
  const wrk = Bun.which("wrk");
  if (wrk === null)
    throw new Error("Cannot load a server without wrk (Debian: apt-get install wrk)");

  const load = ["-t1", `-c${connections}`, `-d${Math.ceil(seconds)}s`, "--timeout", "30s"];
  const script = ["-s", join(import.meta.dir, "wrk.lua"), url, "--", file, ids, String(first)];
  const child = Bun.spawn([wrk, ...load, ...script], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    signal: stop.signal,
  });
  const output = await new Response(child.stdout).text();

  stop.signal.throwIfAborted();
  if ((await child.exited) !== 0) throw new Error(`The load on ${url} ended early:\n${output}`);
  const result = JSON.parse(output.trimEnd().split("\n").at(-1) ?? "") as LoadResult;
  const expected = status < 400 ? 0 : result.responses;
  if (result.broken > 0 || result.refused !== expected || result.responses === 0) {
    throw new Error(`Expected status ${status} for every request, got ${JSON.stringify(result)}`);
  }

  return result;
}
