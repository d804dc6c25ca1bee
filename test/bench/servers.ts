import { Database } from "bun:sqlite";
import { join } from "node:path";

import { withDeadline } from "../../src/async/timers.ts";
import { post } from "../support/client.ts";
import { ivy } from "../support/plants.ts";
import { cpuMicros, memoryOf } from "../support/proc.ts";
import { emptyDirectory, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { type Contender, CREDENTIALS } from "./contenders.ts";
import { type LoadOptions, type LoadResult, runLoad, stop } from "./run_load.ts";

/** What a load cost a server, or several together: then the times are those of the slowest. */
export interface Cost extends Pick<
  LoadResult,
  "responses" | "p50Ms" | "p90Ms" | "p99Ms" | "maxMs"
> {
  /** Of all threads, for one response. */
  readonly cpuMicros: number;
  /** Of a database that is apart, for one response. */
  readonly databaseMicros: number;
  /** Responses. */
  readonly perSecond: number;
  /** The most memory so far, in megabytes. */
  readonly peakMB: number;
}

/** A contender that runs. */
export type Server = Awaited<ReturnType<typeof startContender>>;

/**
 * Starts a contender. At the end of the scope it is killed, and its plants are compared with its
 * responses.
 *
 * @throws {Error} At the end of the scope, if a plant with a 200 is missing, or one is there that
 *   nobody sent.
 */
export async function startContender(contender: Contender) {
  const {
    name,
    program,
    env,
    settled,
    stores = true,
    servers = 1,
    databaseProcesses = () => [],
  } = contender;

  const stack = new AsyncDisposableStack();
  const cwd = contender.cwd ?? stack.use(emptyDirectory()).path;
  const count = contender.count ?? (async () => countPlants(cwd));
  const before = stores ? await count().catch(() => 0) : 0;
  const started: Awaited<ReturnType<typeof startServer>>[] = [];

  for (let index = 0; index < servers; index++) {
    const server = stack.use(await startServer({ program, cwd, env: { ...CREDENTIALS, ...env } }));
    if (settled !== undefined) await server.stderr.until(settled);
    started.push(server);
  }

  const pids = started.map(({ child }) => child.pid);
  let stored = 0;
  let unknown = 0;

  const measure = loadOn(
    started.map(({ url }) => url),
    pids,
    databaseProcesses,
  );

  async function load(options: LoadOptions): Promise<Cost> {
    const cost = await measure(options);
    if ((options.status ?? 200) === 200) {
      stored += cost.responses;
      // wrk closes its connections at the end, whatever is in flight.
      unknown += options.connections * servers;
    }
    return cost;
  }

  return {
    url: started[0]?.url ?? "",
    /** How many processes it is. */
    servers,
    load,
    async [Symbol.asyncDispose]() {
      await using _ = stack;
      for (const { child } of started) child.kill("SIGKILL");
      await Promise.all(started.map(({ child }) => child.exited));
      if (!stores) return;
      const rows = (await count()) - before;
      if (rows >= stored && rows <= stored + unknown) return;
      throw new Error(`${name} answered 200 to ${stored} plants, and stored ${rows}`);
    },
  };
}

/** Loads servers that run, all alike and at once, and measures what that costs them. */
export function loadOn(
  urls: readonly string[],
  pids: readonly number[],
  databaseProcesses: () => readonly number[] = () => [],
): (options: LoadOptions) => Promise<Cost> {
  return async (options) => {
    const serverBegin = cpuMicros(pids);
    const databaseBegin = cpuMicros(databaseProcesses());
    const results = await Promise.all(urls.map((url) => runLoad(url, options)));
    const serverEnd = cpuMicros(pids);
    const databaseEnd = cpuMicros(databaseProcesses());

    const responses = results.reduce((sum, result) => sum + result.responses, 0);
    const most = (figure: keyof LoadResult) => Math.max(...results.map((result) => result[figure]));

    return {
      responses,
      p50Ms: most("p50Ms"),
      p90Ms: most("p90Ms"),
      p99Ms: most("p99Ms"),
      maxMs: most("maxMs"),
      cpuMicros: (serverEnd - serverBegin) / responses,
      databaseMicros: (databaseEnd - databaseBegin) / responses,
      perSecond: results.reduce((sum, result) => sum + result.responses / result.seconds, 0),
      peakMB: Math.max(...pids.map((pid) => memoryOf(pid).most)) / 1e6,
    };
  };
}

function countPlants(directory: string): number {
  using database = new Database(join(directory, "plants.db"), { readwrite: true });
  return (
    database.query<{ plants: number }, []>("SELECT count(*) AS plants FROM plants").get()?.plants ??
    Number.NaN
  );
}

/**
 * Refuses a contender that returns 200 without an fsync: on a disk whose fsync fails it must not.
 *
 * @throws {Error} If it does, or if it does not work on a sound disk.
 */
export async function requireFsync({ name, program, env = {} }: Contender): Promise<void> {
  stop.signal.throwIfAborted();
  using disk = makeDisk({ shim: true });
  await using server = await startServer(disk.server({ program, env }));
  const well = await post(server.url);

  if (well.status !== 200) throw new Error(`${name} answered ${well.status} to a plant`);
  disk.raise("fail-sync");
  const response = post(server.url, ivy({ id: 2 })).catch(() => undefined);
  const sick = await withDeadline(response, 2_000, () => undefined);
  if (sick?.status === 200)
    throw new Error(`${name} answers 200 without an fsync, so it is not compared`);
}
