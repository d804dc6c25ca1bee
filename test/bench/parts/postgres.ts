import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { type Contender, ours, POOL } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { costTable, type Outcome, outcome, type Section } from "../report.ts";
import { compare, type Costs, relative, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";

const CONNECTIONS = [64, 256];

const NAMES = {
  sqlite: "SQLite",
  postgres: "PostgreSQL",
  three: "three servers, as many connections each",
  pool: POOL.name,
} as const;

/**
 * What a plant costs on PostgreSQL, the servers and the database, beside SQLite and beside one
 * INSERT a request.
 */
export async function postgres(rounds: Rounds): Promise<Section> {
  const title = "PostgreSQL beside SQLite";
  const about = "Random ids, fsync on; CPU of the servers, and of all processes of the database.";

  if (skipsCluster())
    return {
      title,
      about,
      columns: [],
      rows: [],
      missing: ["PostgreSQL: npm has none for this system"],
    };

  await using cluster = await startCluster({
    disk: "disk",
    settings: { max_wal_size: "2GB", shared_buffers: "256MB" },
  });
  const costs = new Map<string, readonly Cost[]>();

  for (const connections of CONNECTIONS) {
    await using stack = new AsyncDisposableStack();
    const all = await compare(await contenders(cluster, stack), rounds, {
      connections,
      ids: "random",
    });
    for (const [name, ofName] of all) costs.set(at(connections, name), ofName);
  }

  return {
    title,
    about,
    ...costTable(costs, "database", [
      ["server CPU µs/plant", "cpuMicros", 1],
      ["database CPU µs/plant", "databaseMicros", 1],
      ["plants/s", "perSecond", 0],
      ["p99 ms", "p99Ms", 2],
    ]),
    goals: CONNECTIONS.flatMap((connections) => goals(costs, connections)),
  };
}

const at = (connections: number, name: string) => `${name}, ${connections} connections`;

async function contenders(
  cluster: PostgresCluster,
  stack: AsyncDisposableStack,
): Promise<Contender[]> {
  const onPostgres = async (contender: Contender): Promise<Contender> => {
    const { url, run } = stack.use(await cluster.newDatabase());
    const count = async () =>
      Number((await run("SELECT count(*) AS plants FROM plants"))[0]?.["plants"]);
    // Of the program by hand, the server would get every parameter.
    const env = { DATABASE_URL: url.replace(/\?.*/, "") };
    return { ...contender, env, count, databaseProcesses: cluster.processes };
  };

  return [
    ours({ name: NAMES.sqlite }),
    await onPostgres(ours({ name: NAMES.postgres })),
    await onPostgres(ours({ name: NAMES.three, servers: 3 })),
    await onPostgres(POOL),
  ];
}

function goals(costs: Costs, connections: number): Outcome[] {
  const goal = (whose: "server" | "database", name: string, base: string, limit: number) => {
    const figure = whose === "server" ? "cpuMicros" : "databaseMicros";
    const values = relative(costs, figure, at(connections, name), at(connections, base));
    return outcome(`${connections} connections, ${whose} CPU: ${name} / ${base}`, values, limit);
  };

  return [
    goal("server", NAMES.postgres, NAMES.sqlite, GOALS.postgres),
    goal("database", NAMES.postgres, NAMES.pool, GOALS.database),
    goal("server", NAMES.three, NAMES.postgres, GOALS.threeServers),
  ];
}
