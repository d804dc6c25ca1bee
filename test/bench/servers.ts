import { Database } from "bun:sqlite";
import { join } from "node:path";
import { emptyDirectory, startServer } from "../support/program.ts";
import { type Contender, CREDENTIALS } from "./contenders.ts";
import type { GeneratorResult } from "./load.ts";
import { cpuMicros, peakMemory } from "./process.ts";
import { GENERATOR, type LoadOptions, runLoad } from "./run_load.ts";

/** What a load cost a server. */
export interface Cost extends GeneratorResult {
  /** Of all threads, for one response. */
  readonly cpuMicros: number;
  /** Responses. */
  readonly perSecond: number;
  /** So far, in bytes. */
  readonly peakMemory: number;
}

/** A contender that runs. */
export type Server = Awaited<ReturnType<typeof startContender>>;

/**
 * Starts a contender. At the end of the scope it is killed, and what it stored is compared with what it answered.
 *
 * @throws {Error} At the end of the scope, if a plant that was answered 200 is missing, or one is there that nobody sent.
 */
export async function startContender(contender: Contender) {
  const { name, program, env, ids = "ascending" } = contender;
  const stack = new AsyncDisposableStack();
  const cwd = contender.cwd ?? stack.use(emptyDirectory()).path;
  const count = contender.count ?? (async () => countPlants(cwd));
  const before = contender.stores === false ? 0 : await count().catch(() => 0);
  const server = stack.use(await startServer({ program, cwd, env: { ...CREDENTIALS, ...env } }));
  if (contender.settled !== undefined) await server.stderr.until(contender.settled);
  const { pid } = server.child;
  let [stored, unknown] = [0, 0];

  async function load(options: LoadOptions): Promise<Cost> {
    const begin = cpuMicros(pid);
    const result = await runLoad(server.url, { ids, ...options });
    const spent = cpuMicros(pid) - begin;
    if ((options.status ?? 200) === 200) {
      stored += result.responses;
      // wrk closes its connections at the end, whatever is in flight.
      unknown += GENERATOR === "wrk" ? options.connections : 0;
    }
    const { responses, seconds } = result;
    const memory = peakMemory(pid);
    return { ...result, cpuMicros: spent / responses, perSecond: responses / seconds, peakMemory: memory };
  }

  return {
    name,
    url: server.url,
    load,
    async [Symbol.asyncDispose]() {
      await using _ = stack;
      server.child.kill("SIGKILL");
      await server.child.exited;
      if (contender.stores !== false) requireRows(name, (await count()) - before, stored, unknown);
    },
  };
}

function countPlants(directory: string): number {
  using database = new Database(join(directory, "plants.db"), { readwrite: true });
  return database.query<{ plants: number }, []>("SELECT count(*) AS plants FROM plants").get()?.plants ?? Number.NaN;
}

function requireRows(name: string, rows: number, stored: number, unknown: number): void {
  if (rows >= stored && rows <= stored + unknown) return;
  throw new Error(`${name} answered 200 to ${stored} plants, and stored ${rows}`);
}
