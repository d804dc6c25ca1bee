/**
 * What a stored plant costs on PostgreSQL, the server's CPU and the database's, beside SQLite and beside one INSERT a
 * request; and on three servers. CPU from /proc (so Linux only), on loopback, with fsync on, in interleaved rounds.
 *
 * `bun test/bench/postgres.ts [--connections 64] [--plants 40000] [--rounds 3]`
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { TOKEN } from "../support/client.ts";
import { type PostgresCluster, startCluster } from "../support/postgres.ts";
import { emptyDirectory, FROM_SOURCE, startServer } from "../support/program.ts";

const { values: flags } = parseArgs({
  options: {
    connections: { type: "string", default: "64" },
    plants: { type: "string", default: "40000" },
    rounds: { type: "string", default: "3" },
  },
});
const [connections, plants, rounds] = [flags.connections, flags.plants, flags.rounds].map(Number) as [
  number,
  number,
  number,
];

const POOL = [process.execPath, join(import.meta.dir, "by_hand_pool.ts")];

/** CPU a plant, in microseconds. */
interface Cost {
  readonly server: number;
  readonly database: number;
  readonly perSecond: number;
}

const SUBJECTS: Readonly<Record<string, (cluster: PostgresCluster, url: string) => Promise<Cost>>> = {
  SQLite: () => measure(undefined, "file:plants.db", 1, FROM_SOURCE),
  PostgreSQL: (cluster, url) => measure(cluster, url, 1, FROM_SOURCE),
  "three servers, as many connections each": (cluster, url) => measure(cluster, url, 3, FROM_SOURCE),
  "three servers, a third of them each": (cluster, url) => measure(cluster, url, 3, FROM_SOURCE, 3),
  "one INSERT a request, pool of 10": (cluster, url) => measure(cluster, url, 1, POOL),
};

await using cluster = await startCluster({ disk: "disk", settings: { max_wal_size: "2GB", shared_buffers: "256MB" } });
const costs = new Map<string, Cost[]>(Object.keys(SUBJECTS).map((name) => [name, []]));
for (let round = 0; round < rounds; round++) {
  for (const [name, run] of Object.entries(SUBJECTS)) {
    await cluster.run("DROP TABLE IF EXISTS plants, tokens, token_revision, probes, plant_store_migrations");
    costs.get(name)?.push(await run(cluster, cluster.url("postgres")));
  }
}
console.log(`${connections} connections, random ids, ${plants} plants a round, median of ${rounds} rounds\n`);
console.log("| | server CPU µs/plant | PostgreSQL CPU µs/plant | plants/s |\n| --- | --- | --- | --- |");
for (const [name, all] of costs) {
  const of = (figure: (cost: Cost) => number) => median(all.map(figure)).toFixed(0);
  console.log(
    `| ${name} | ${of(({ server }) => server)} | ${of(({ database }) => database)} | ${of(({ perSecond }) => perSecond)} |`,
  );
}

async function measure(
  database: PostgresCluster | undefined,
  url: string,
  servers: number,
  program: readonly string[],
  share = 1,
): Promise<Cost> {
  using directory = emptyDirectory();
  await using stack = new AsyncDisposableStack();
  const started = [];
  for (let index = 0; index < servers; index++) {
    const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: url };
    started.push(stack.use(await startServer({ program, cwd: directory.path, env })));
  }
  // Compiled, connected, and with some pages.
  await Promise.all(started.map((server) => load(server.url, servers, share)));
  const before = [cpuOf(started.map(({ child }) => child.pid)), cpuOf(database?.processes() ?? [])] as const;
  const began = performance.now();
  await Promise.all(started.map((server) => load(server.url, servers, share)));
  const seconds = (performance.now() - began) / 1_000;
  const after = [cpuOf(started.map(({ child }) => child.pid)), cpuOf(database?.processes() ?? [])] as const;
  return {
    server: (after[0] - before[0]) / plants,
    database: (after[1] - before[1]) / plants,
    perSecond: plants / seconds,
  };
}

async function load(url: string, servers: number, share: number): Promise<void> {
  const counts = { connections: Math.ceil(connections / share), plants: Math.ceil(plants / servers) };
  const args = Object.entries({ url, ...counts, ids: "random" }).map(([name, value]) => `--${name}=${value}`);
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "load.ts"), ...args], {
    stdout: "ignore",
    stderr: "inherit",
  });
  if ((await child.exited) !== 0) throw new Error(`The load on ${url} ended early`);
}

/** See proc_pid_stat(5), in microseconds; Linux counts in hundredths of a second. */
function cpuOf(pids: readonly number[]): number {
  const fieldsOf = (pid: number) => {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  };
  return pids.map(fieldsOf).reduce((sum, fields) => sum + (Number(fields[11]) + Number(fields[12])) * 10_000, 0);
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
}
