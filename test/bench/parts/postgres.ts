import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { type Contender, ours, POOL } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, type Costs, figures, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

const CONNECTIONS = [64, 256];

const NAMES = {
  sqlite: "SQLite",
  postgres: "PostgreSQL",
  three: "three servers, as many connections each",
  pool: POOL.name,
} as const;

/** What a plant costs on PostgreSQL, the servers and the database, beside SQLite and beside one INSERT a request. */
export async function postgres(rounds: Rounds): Promise<Section> {
  const title = "PostgreSQL beside SQLite";
  const about = "Random ids, fsync on; CPU of the servers, and of all processes of the database.";
  if (skipsCluster())
    return { title, about, columns: [], rows: [], missing: ["PostgreSQL: npm has none for this system"] };
  await using cluster = await startCluster({
    disk: "disk",
    settings: { max_wal_size: "2GB", shared_buffers: "256MB" },
  });
  const all = [];
  for (const connections of CONNECTIONS) {
    await using stack = new AsyncDisposableStack();
    const costs = await compare(await contenders(cluster, stack), rounds, { connections });
    all.push({ rows: rows(costs, connections), goals: goals(costs, connections), costs: named(costs, connections) });
  }
  return {
    title,
    about,
    columns: ["", "connections", "server CPU µs/plant", "database CPU µs/plant", "plants/s", "p99 ms"],
    rows: all.flatMap((part) => part.rows),
    goals: all.flatMap((part) => part.goals),
    costs: Object.assign({}, ...all.map((part) => part.costs)) as Record<string, readonly Cost[]>,
  };
}

async function contenders(cluster: PostgresCluster, stack: AsyncDisposableStack): Promise<Contender[]> {
  const onPostgres = async (contender: Contender): Promise<Contender> => {
    const database = stack.use(await cluster.newDatabase());
    const count = () => countPlants(database);
    return { ...contender, ids: "random", databaseUrl: database.url, count, databaseProcesses: cluster.processes };
  };
  return [
    ours({ name: NAMES.sqlite, ids: "random" }),
    await onPostgres(ours({ name: NAMES.postgres })),
    await onPostgres(ours({ name: NAMES.three, servers: 3 })),
    await onPostgres(POOL),
  ];
}

async function countPlants({ run }: Awaited<ReturnType<PostgresCluster["newDatabase"]>>): Promise<number> {
  const [row] = await run("SELECT count(*) AS plants FROM plants");
  return Number(row?.["plants"]);
}

/** Whose CPU, in microseconds a plant. */
const CPU = {
  server: ({ cpuMicros }: Cost) => cpuMicros,
  database: ({ databaseMicros }: Cost) => databaseMicros,
} as const;

function rows(costs: Costs, connections: number): string[][] {
  return [...costs.keys()].map((name) => {
    const of = (figure: (cost: Cost) => number) => median(figures(costs, name, figure));
    const micros = name === NAMES.sqlite ? "" : of(CPU.database).toFixed(1);
    const [rate, p99] = [of(({ perSecond }) => perSecond), of(({ p99Ms }) => p99Ms)];
    return [name, String(connections), of(CPU.server).toFixed(1), micros, thousands(rate), p99.toFixed(2)];
  });
}

function goals(costs: Costs, connections: number): Outcome[] {
  const goal = (whose: keyof typeof CPU, name: string, base: string, limit: number) => {
    const cpu = (of: string) => figures(costs, of, CPU[whose]);
    return outcome(`${connections} connections, ${whose} CPU: ${name} / ${base}`, ratios(cpu(name), cpu(base)), limit);
  };
  return [
    goal("server", NAMES.postgres, NAMES.sqlite, GOALS.postgres),
    goal("database", NAMES.postgres, NAMES.pool, GOALS.database),
    goal("server", NAMES.three, NAMES.postgres, GOALS.threeServers),
  ];
}

function named(costs: Costs, connections: number): Record<string, readonly Cost[]> {
  return Object.fromEntries([...costs].map(([name, all]) => [`${name}, ${connections} connections`, all]));
}
