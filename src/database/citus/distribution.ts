import type { CreationOptions, DatabaseAdapter } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { codeOf, withDatabaseError } from "../postgres/errors.ts";
import { migratePostgres, type Reached } from "../postgres/postgres_database.ts";

/**
 * Requires that the table of plants, if it exists, is distributed by id. With `create`, creates a missing table
 * first, which the operator must then distribute.
 *
 * @throws {DatabaseError} If the table is not distributed, or the server is not the coordinator.
 */
export async function requireDistributed(
  reached: Reached,
  { create, onCreate }: CreationOptions,
): Promise<void> {
  const table = await ask(reached);
  if (table === "missing") {
    if (create !== true) return;
    await migratePostgres(reached, { dryRun: false, onCreate });
  }
  if (table !== "distributed")
    throw new DatabaseError(`Cannot open database "${reached.url.database}": ${NOT_DISTRIBUTED}`);
}

const NOT_DISTRIBUTED =
  "plants is not distributed by id: stop the servers, and run create_distributed_table('plants', 'id') on the coordinator";

/**
 * Migrates the schema on the coordinator: see {@linkcode DatabaseAdapter.migrate}.
 *
 * @throws {DatabaseError} As {@linkcode migratePostgres}, or if the server is not the coordinator.
 */
export async function migrateCitus(
  reached: Reached,
  options: Parameters<DatabaseAdapter["migrate"]>[0],
): ReturnType<DatabaseAdapter["migrate"]> {
  await ask(reached);
  return await migratePostgres(reached, options);
}

/** The coordinator is group 0. A table that is not in Citus's catalog is not distributed. */
const CLUSTER = `SELECT groupid AS node,
    CASE WHEN to_regclass('plants') IS NULL THEN 'missing'
      WHEN EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('plants')
        AND partmethod = 'h' AND column_to_column_name(logicalrelid, partkey) = 'id') THEN 'distributed'
      ELSE 'undistributed' END AS table
  FROM pg_dist_local_group`;

interface Cluster {
  readonly node: number;
  readonly table: "missing" | "undistributed" | "distributed";
}

/** @throws {DatabaseError} If the server is not the coordinator. */
async function ask({ url, connection: { query } }: Reached): Promise<Cluster["table"]> {
  return await withDatabaseError("open", url.database, async () => {
    const [{ node, table }] = (await query(CLUSTER).catch(refuseOthers)) as [Cluster];
    if (node === 0) return table;
    throw new DatabaseError(
      `the server is worker ${node} of a Citus cluster; use the URL of its coordinator`,
    );
  });
}

function refuseOthers(error: unknown): never {
  // undefined_table
  if (codeOf(error) !== "42P01") throw error;
  throw new DatabaseError(
    "it does not have the extension citus: create that, or use the scheme postgres",
    { cause: error },
  );
}
