import { Database } from "bun:sqlite";
import { join } from "node:path";
import { cpuMicros, memoryOf } from "../support/proc.ts";
import { emptyDirectory, startServer } from "../support/program.ts";
import { type Contender, CREDENTIALS } from "./contenders.ts";
import { type LoadOptions, type LoadResult, runLoad } from "./run_load.ts";

/** What a load cost a server, or several together. */
export interface Cost extends LoadResult {
  /** Of all threads, for one response. */
  readonly cpuMicros: number;
  /** Of a database that is apart, for one response. */
  readonly databaseMicros: number;
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
  const { name, ids = "ascending", servers = 1, databaseProcesses = () => [] } = contender;
  const stack = new AsyncDisposableStack();
  const cwd = contender.cwd ?? stack.use(emptyDirectory()).path;
  const count = contender.count ?? (async () => countPlants(cwd));
  const before = contender.stores === false ? 0 : await count().catch(() => 0);
  const started: Process[] = [];
  for (let index = 0; index < servers; index++) started.push(stack.use(await startProcess(contender, cwd)));
  const pids = started.map(({ child }) => child.pid);
  let [stored, unknown] = [0, 0];

  async function load(options: LoadOptions): Promise<Cost> {
    const perServer = { ids, ...options };
    const spent = () => [cpuMicros(pids), cpuMicros(databaseProcesses())] as const;
    const begin = spent();
    const results = await Promise.all(started.map(({ url }) => runLoad(url, perServer)));
    const end = spent();
    const result = together(results);
    if ((options.status ?? 200) === 200) {
      stored += result.responses;
      // wrk closes its connections at the end, whatever is in flight.
      unknown += options.connections * servers;
    }
    return {
      ...result,
      cpuMicros: (end[0] - begin[0]) / result.responses,
      databaseMicros: (end[1] - begin[1]) / result.responses,
      peakMemory: Math.max(...pids.map((pid) => memoryOf(pid).most)),
    };
  }

  return {
    name,
    url: started[0]?.url ?? "",
    /** How many processes it is. */
    servers,
    load,
    async [Symbol.asyncDispose]() {
      await using _ = stack;
      for (const { child } of started) child.kill("SIGKILL");
      await Promise.all(started.map(({ child }) => child.exited));
      if (contender.stores !== false) requireRows(name, (await count()) - before, stored, unknown);
    },
  };
}

type Process = Awaited<ReturnType<typeof startServer>>;

async function startProcess(contender: Contender, cwd: string): Promise<Process> {
  const { program, databaseUrl, settled } = contender;
  const env = { ...CREDENTIALS, ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }), ...contender.env };
  const server = await startServer({ program, cwd, env });
  if (settled !== undefined) await server.stderr.until(settled);
  return server;
}

/** Loads that ran at once, as one; the times are those of the slowest server. */
function together(results: readonly LoadResult[]): LoadResult & Pick<Cost, "perSecond"> {
  const sum = (figure: (result: LoadResult) => number) => results.reduce((all, result) => all + figure(result), 0);
  const most = (figure: (result: LoadResult) => number) => Math.max(...results.map(figure));
  return {
    responses: sum(({ responses }) => responses),
    refused: sum(({ refused }) => refused),
    broken: sum(({ broken }) => broken),
    seconds: most(({ seconds }) => seconds),
    p50Ms: most(({ p50Ms }) => p50Ms),
    p90Ms: most(({ p90Ms }) => p90Ms),
    p99Ms: most(({ p99Ms }) => p99Ms),
    maxMs: most(({ maxMs }) => maxMs),
    perSecond: sum(({ responses, seconds }) => responses / seconds),
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
