import type { CreationOptions, DatabaseAdapter } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { withDatabaseError } from "../postgres/errors.ts";
import { type Opener, POSTGRES } from "../postgres/postgres_adapter.ts";
import type { Reached } from "../postgres/postgres_database.ts";
import { openCitus, serveCitus } from "./citus_database.ts";

/** The ways of a Citus cluster, by its coordinator: what differs from PostgreSQL is where plants are. */
export const CITUS: Opener = {
  async open(reached, { access, onCreate }) {
    await requireDistributed(reached, { create: access === "create", onCreate });
    return await openCitus(reached, { access });
  },

  async openForServing(reached, options) {
    await requireDistributed(reached, options);
    return await serveCitus(reached, options);
  },

  migrate: async (reached, dryRun) => await migrateCitus(reached, await ask(reached), dryRun),
};

/** Requires that the plants are distributed. If there are none, `create` distributes them. */
async function requireDistributed(
  reached: Reached,
  { create, onCreate }: CreationOptions,
): Promise<void> {
  const found = await ask(reached);
  if (found.isDistributed) return;

  if (!create || found.hasPlants)
    throw new DatabaseError(
      `Cannot open database "${reached.url.database}": plants is not distributed by id: run plant-store migrate`,
    );
  await migrateCitus(reached, found, false);
  onCreate?.(reached.url.database);
}

/** Migrates the schema on the coordinator, and distributes the table of plants. */
async function migrateCitus(
  reached: Reached,
  found: Cluster,
  dryRun: boolean,
): ReturnType<DatabaseAdapter["migrate"]> {
  const migrations = await POSTGRES.migrate(reached, dryRun);
  if (found.isDistributed) return migrations;

  const script = distributionOf(found.nodes);
  if (!dryRun)
    await withDatabaseError("open", reached.url.database, async () => {
      await reached.connection.script("SET lock_timeout = 0; SET statement_timeout = 0");
      await reached.connection.script(script);
    });
  return [...migrations, { tag: "distribute_plants", script }];
}

/** What the coordinator says. */
interface Cluster {
  /** How many nodes may have shards. */
  readonly nodes: number;
  readonly isDistributed: boolean;
  readonly hasPlants: boolean;
}

/** The group of the coordinator is 0. */
const CLUSTER = `SELECT groupid AS node,
    (SELECT greatest(1, count(*))::int FROM pg_dist_node WHERE shouldhaveshards AND noderole = 'primary') AS nodes,
    to_regclass('plants') IS NOT NULL AS "hasTable",
    EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('plants') AND partmethod = 'h'
      AND column_to_column_name(logicalrelid, partkey) = 'id') AS "isDistributed"
  FROM pg_dist_local_group`;

interface Row extends Omit<Cluster, "hasPlants"> {
  readonly node: number;
  readonly hasTable: boolean;
}

/** @throws {DatabaseError} If the server is not the coordinator. */
async function ask({ url, connection: { query } }: Reached): Promise<Cluster> {
  return await withDatabaseError("open", url.database, async () => {
    const [{ node, hasTable, ...cluster }] = (await query(CLUSTER)) as [Row];
    if (node !== 0)
      throw new DatabaseError(
        `the server is worker ${node} of a Citus cluster; use the URL of its coordinator`,
      );

    const isPlain = hasTable && !cluster.isDistributed;
    const plants = isPlain ? await query("SELECT FROM plants LIMIT 1") : [];
    return { ...cluster, hasPlants: plants.length > 0 };
  });
}

/** The key of the advisory lock that lets one session at a time distribute: "citu". */
const LOCK = 0x63697475;

/**
 * Distributes the plants, and those that are stored already with them. Few shards: two for each
 * node. A batch is a statement for each shard, and shards can be split later, while plants are
 * stored. Any number of servers may do so at once.
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
