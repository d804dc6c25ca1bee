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
  threeApart: "three servers with a database each, as many connections each",
  sharing: "three servers, a third of the connections each",
  sharingApart: "three servers with a database each, a third of the connections each",
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

/**
 * What three servers on one database cost above three with a database each is what it costs them to be on the same one.
 * The rest of what they cost above one server comes from the processors, which they have to share here.
 */
async function contenders(cluster: PostgresCluster, stack: AsyncDisposableStack): Promise<Contender[]> {
  const onPostgres = async (contender: Contender, databases = 1): Promise<Contender> => {
    const all: Database[] = [];
    while (all.length < databases) all.push(stack.use(await cluster.newDatabase({ tables: false })));
    const [databaseUrls, count] = [all.map(({ url }) => url), () => countPlants(all)];
    return { ...contender, ids: "random", databaseUrls, count, databaseProcesses: cluster.processes };
  };
  const three = (name: string, connectionsShare: number) => ours({ name, servers: 3, connectionsShare });
  return [
    ours({ name: NAMES.sqlite, ids: "random" }),
    await onPostgres(ours({ name: NAMES.postgres })),
    await onPostgres(three(NAMES.three, 1)),
    await onPostgres(three(NAMES.threeApart, 1), 3),
    await onPostgres(three(NAMES.sharing, 1 / 3)),
    await onPostgres(three(NAMES.sharingApart, 1 / 3), 3),
    await onPostgres(POOL),
  ];
}

type Database = Awaited<ReturnType<PostgresCluster["newDatabase"]>>;

async function countPlants(databases: readonly Database[]): Promise<number> {
  const counts = databases.map(({ run }) => run("SELECT count(*) AS plants FROM plants"));
  return (await Promise.all(counts)).reduce((all, [row]) => all + Number(row?.["plants"]), 0);
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
    goal("server", NAMES.three, NAMES.threeApart, GOALS.threeServers),
    goal("server", NAMES.sharing, NAMES.postgres, GOALS.threeServers),
    goal("server", NAMES.sharing, NAMES.sharingApart, GOALS.threeServers),
  ];
}

function named(costs: Costs, connections: number): Record<string, readonly Cost[]> {
  return Object.fromEntries([...costs].map(([name, all]) => [`${name}, ${connections} connections`, all]));
}
