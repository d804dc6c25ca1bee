import type { CreationOptions, DatabaseAdapter } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { codeOf, withDatabaseError } from "../postgres/errors.ts";
import { migratePostgres, type Reached } from "../postgres/postgres_database.ts";
import { howToRun } from "../postgres/url.ts";

/**
 * Requires that the plants are distributed, if there are tables. With `create` they become so, unless
 * some are stored already: distributing those may take hours.
 *
 * @throws {DatabaseError} If they are not, or the server is not the coordinator.
 */
export async function requireDistributed(
  reached: Reached,
  { create, onCreate }: CreationOptions,
): Promise<void> {
  const cluster = await ask(reached);
  if (create && cluster.table !== "distributed" && !cluster.hasPlants)
    await distribute(reached, cluster, { dryRun: false, onCreate });
  else if (cluster.table === "local")
    throw new DatabaseError(`Cannot open database "${reached.url.database}": ${NOT_DISTRIBUTED}`);
}

const NOT_DISTRIBUTED = `its plants are not distributed: stop the servers, and ${howToRun("migrate")}`;

/**
 * Migrates the schema on the coordinator, and distributes the plants, as
 * {@linkcode DatabaseAdapter.migrate} has it.
 *
 * @throws {DatabaseError} As {@linkcode migratePostgres}, or if the server is not the coordinator.
 */
export async function migrateCitus(
  reached: Reached,
  options: MigrateOptions,
): ReturnType<DatabaseAdapter["migrate"]> {
  return await distribute(reached, await ask(reached), options);
}

type MigrateOptions = Parameters<DatabaseAdapter["migrate"]>[0];

async function distribute(
  reached: Reached,
  { nodes, table }: Cluster,
  options: MigrateOptions,
): ReturnType<DatabaseAdapter["migrate"]> {
  const migrations = await migratePostgres(reached, options);
  if (table === "distributed") return migrations;

  const script = distributionOf(nodes);
  if (!options.dryRun)
    await withDatabaseError("open", reached.url.database, () => run(script, reached));
  return [...migrations, { tag: "distribute_plants", script }];
}

async function run(distribution: string, { connection: { script } }: Reached): Promise<void> {
  await script("SET lock_timeout = 0; SET statement_timeout = 0");
  try {
    await script(distribution);
  } catch (error) {
    // connection_failure, of the coordinator to a node
    if (codeOf(error) !== "08006") throw error;
    throw new DatabaseError(NODE_REFUSES, { cause: error });
  }
}

const NODE_REFUSES =
  "the coordinator cannot connect to a node as this user: let pg_hba.conf of the node accept it, and give the coordinator its password in pg_dist_authinfo or .pgpass";

/** What the coordinator says. */
interface Cluster {
  /** How many nodes may have shards. */
  readonly nodes: number;
  readonly table: "missing" | "local" | "distributed";
  readonly hasPlants: boolean;
}

/** The group of the coordinator is 0. A table that Citus does not know is PostgreSQL's own. */
const CLUSTER = `SELECT groupid AS node,
    (SELECT greatest(1, count(*))::int FROM pg_dist_node WHERE shouldhaveshards AND noderole = 'primary') AS nodes,
    CASE WHEN to_regclass('plants') IS NULL THEN 'missing'
      ELSE coalesce((SELECT CASE WHEN partmethod = 'h' AND column_to_column_name(logicalrelid, partkey) = 'id'
          THEN 'distributed' ELSE 'unknown' END
        FROM pg_dist_partition WHERE logicalrelid = to_regclass('plants')), 'local') END AS table
  FROM pg_dist_local_group`;

interface Row {
  readonly node: number;
  readonly nodes: number;
  readonly table: Cluster["table"] | "unknown";
}

/** @throws {DatabaseError} If the server is not the coordinator, or the plants are elsewhere. */
async function ask({ url, connection: { query } }: Reached): Promise<Cluster> {
  return await withDatabaseError("open", url.database, async () => {
    const [{ node, nodes, table }] = (await query(CLUSTER).catch(refuseOthers)) as [Row];
    if (node !== 0)
      throw new DatabaseError(
        `the server is worker ${node} of a Citus cluster; use the URL of its coordinator`,
      );
    if (table === "unknown")
      throw new DatabaseError(
        `plants is not distributed by id: stop the servers, run undistribute_table('plants'), and then ${howToRun("migrate")}`,
      );

    const plants = table === "local" ? await query("SELECT FROM plants LIMIT 1") : [];
    return { nodes, table, hasPlants: plants.length > 0 };
  });
}

function refuseOthers(error: unknown): never {
  // undefined_table
  if (codeOf(error) !== "42P01") throw error;
  throw new DatabaseError(
    "it does not have the extension citus: create that, or use the scheme postgres",
    {
      cause: error,
    },
  );
}

/** The key of the advisory lock that lets one session at a time distribute: "citu". */
const LOCK = 0x63697475;

/**
 * Distributes the plants, even those that are stored already, over two shards for each node. A batch
 * is a statement for each shard, so few are better; they can be split later, while plants are stored.
 * Any number of servers may do so at once.
 */
function distributionOf(nodes: number): string {
  return `BEGIN;
DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(${LOCK});
  IF NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = 'plants'::regclass) THEN
    PERFORM create_distributed_table('plants', 'id', shard_count => ${2 * nodes}, colocate_with => 'none');
  END IF;
END $$;
COMMIT;
`;
}
