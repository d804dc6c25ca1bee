import type { DatabaseAdapter } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import type { Connection } from "../postgres/connection.ts";
import { toDatabaseError } from "../postgres/errors.ts";
import { failover } from "../postgres/failover.ts";
import { postgresAdapter } from "../postgres/postgres_adapter.ts";
import type { PostgresUrl } from "../postgres/url.ts";
import { type CitusOptions, openCitus } from "./citus_database.ts";

/**
 * Databases on a PostgreSQL server, or on a Citus cluster if the server is its coordinator. What
 * differs is where plants are; all else is PostgreSQL's.
 *
 * @param readUrl Reads the URL again for a running server. @default the URL stays the same
 */
export function citusAdapter(
  url: PostgresUrl,
  readUrl?: () => Promise<PostgresUrl>,
): DatabaseAdapter {
  const postgres = postgresAdapter(url, readUrl);

  /** Opens the cluster; `undefined` if the server is PostgreSQL by itself. */
  async function open(options: CitusOptions) {
    const found = await ask(url);
    if (!found.isCitus) return undefined;
    requireCoordinator(found, url);

    if (!found.isDistributed) {
      const isNew = options.access === "create" && !found.hasPlants;
      if (!isNew) throw new DatabaseError(`${cannotOpen(url)}: ${NOT_DISTRIBUTED}`);
      await migrateCitus(found, { dryRun: false });
    }
    return await openCitus(url, options);
  }

  /** Migrates the schema on the coordinator, and distributes the table of plants. */
  async function migrateCitus(found: Cluster, { dryRun }: { readonly dryRun: boolean }) {
    const migrations = await postgres.migrate({ dryRun });
    if (found.isDistributed) return migrations;

    const script = distributionOf(found.nodes);
    if (!dryRun)
      await onCoordinator(url, async (connection) => {
        await connection.script("SET lock_timeout = 0; SET statement_timeout = 0");
        await connection.script(script);
      });
    return [...migrations, { tag: "distribute_plants", script }];
  }

  return {
    ...postgres,

    openForServing: async (options) =>
      (await open({ ...options, access: "create", isServing: true, readUrl })) ??
      (await postgres.openForServing(options)),

    openForWriting: async (options = {}) =>
      (await open({ access: options.create === true ? "create" : "write" })) ??
      (await postgres.openForWriting(options)),

    openPlants: async () => (await open({ access: "read" })) ?? (await postgres.openPlants()),

    async migrate({ dryRun }) {
      const found = await ask(url);
      if (!found.isCitus) return await postgres.migrate({ dryRun });
      requireCoordinator(found, url);
      return await migrateCitus(found, { dryRun });
    },
  };
}

const NOT_DISTRIBUTED = "plants is not distributed by id: run plant-store migrate";

function cannotOpen({ database }: PostgresUrl): string {
  return `Cannot open database "${database}"`;
}

/** What the server of a URL is. */
type Facts = { readonly isCitus: false } | Cluster;

interface Cluster {
  readonly isCitus: true;
  /** The group of the server: 0 is the coordinator. */
  readonly node: number;
  /** How many nodes may have shards. */
  readonly nodes: number;
  readonly isDistributed: boolean;
  readonly hasPlants: boolean;
}

/** Without the extension, its tables do not exist: a statement that names them would fail. */
const IS_CITUS = "SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'";

const CLUSTER = `SELECT groupid AS node,
    (SELECT greatest(1, count(*))::int FROM pg_dist_node WHERE shouldhaveshards AND noderole = 'primary') AS nodes,
    to_regclass('plants') IS NOT NULL AS "hasTable",
    EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('plants') AND partmethod = 'h'
      AND column_to_column_name(logicalrelid, partkey) = 'id') AS "isDistributed"
  FROM pg_dist_local_group`;

type Row = Pick<Cluster, "node" | "nodes" | "isDistributed"> & { readonly hasTable: boolean };

async function ask(url: PostgresUrl): Promise<Facts> {
  return await onCoordinator(url, async ({ query }) => {
    if ((await query(IS_CITUS)).length === 0) return { isCitus: false };

    const [{ hasTable, ...cluster }] = (await query(CLUSTER)) as [Row];
    const isPlain = hasTable && !cluster.isDistributed;
    const plants = isPlain ? await query("SELECT FROM plants LIMIT 1") : [];
    return { isCitus: true, ...cluster, hasPlants: plants.length > 0 };
  });
}

function requireCoordinator({ node }: Cluster, url: PostgresUrl): void {
  if (node === 0) return;
  throw new DatabaseError(
    `${cannotOpen(url)}: the server is worker ${node} of a Citus cluster; use the URL of its coordinator`,
  );
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

/** Uses one connection to the coordinator. */
async function onCoordinator<Result>(
  url: PostgresUrl,
  use: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  try {
    const connection = await failover(url).connect();
    return await use(connection).finally(connection.close);
  } catch (error) {
    throw toDatabaseError("open", url.database, error);
  }
}
