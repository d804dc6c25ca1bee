import { columnValue, type NewPlant, PLANT_FIELDS, samePlant } from "../../plant/plant.ts";
import type { Connection, Parameter } from "../postgres/connection.ts";
import { codeOf, PostgresFailure } from "../postgres/errors.ts";
import type { Work } from "../postgres/pool.ts";
import { plantFrom, type PlantRow, type PlantStatements } from "../postgres/postgres_plants.ts";
import { bigintArray, plants } from "../postgres/schema.ts";
import { DURABILITY, type Durability, requireDurable } from "../postgres/session.ts";
import { type NodeId, type Shard, type ShardMap, shardOf } from "./shard_map.ts";

const FIELDS = ["id", ...PLANT_FIELDS] as const;
const COLUMNS = FIELDS.map(columnOf);
/** The columns, each aliased to the name of its field. */
const ROW = FIELDS.map((field) => `${columnOf(field)} AS "${field}"`);
const TYPES = FIELDS.map((field) => plants[field].getSQLType());
/** Any column but the id, which Citus does not allow to be updated. */
const [, OTHER] = COLUMNS;

/** The maximum number of plants in a statement, which may have 65,535 parameters. */
export const MAX_PLANTS = Math.floor(65_535 / FIELDS.length);

/** Returns the column of a field, quoted, because its name may be a key word of SQL. */
function columnOf(field: keyof NewPlant): string {
  return `"${plants[field].name}"`;
}

/** The ids of a batch by shard. */
type ByShard = ReadonlyMap<Shard, readonly bigint[]>;

/**
 * Returns the statements for a batch of one node, for a connection to that node itself.
 *
 * @param map The map by which the node has all plants of the batch. It may be old.
 * @param onMoved Called if a shard has left the node. Its plants have no outcome unless they were `added`.
 */
export function statementsFor(map: ShardMap, onMoved: () => void): PlantStatements {
  return {
    insert,
    lockTable: (connection, plants) => lockShards(connection, byShard(map, plants)),

    async compare(connection, plants) {
      const stored = await readStored(connection, byShard(map, plants));
      if (stored === undefined) onMoved();

      return plants.flatMap((plant, index) => {
        const row = stored?.get(String(plant.id));
        return row === undefined ? [] : [{ index, isSame: samePlant(plantFrom(row), plant) }];
      });
    },
  };
}

function byShard(map: ShardMap, plants: readonly NewPlant[]): ByShard {
  return Map.groupBy(new Set(plants.map(({ id }) => id)), (id) => shardOf(map, id));
}

/**
 * Inserts plants with `VALUES`, whose rows Citus splits by shard. `INSERT … SELECT FROM unnest(…)`, as on
 * PostgreSQL, would go through the coordinator.
 *
 * If a row's shard has left the node, Citus forwards the row to the new node, and the commit waits for the
 * standby there. So an old map costs time, but never a plant.
 *
 * BUG: `alter_distributed_table` and similar functions block writers only on the coordinator. Plants that are
 * stored while they copy the table are lost.
 */
async function insert(
  { query }: Connection,
  plants: readonly NewPlant[],
): Promise<readonly PlantRow[]> {
  const rows = plants.map((_, row) => {
    const at = row * FIELDS.length + 1;
    return `(${TYPES.map((type, column) => `$${at + column}::${type}`)})`;
  });
  const parameters = plants.flatMap((plant) =>
    FIELDS.map((field): Parameter => {
      const value = columnValue(plant, field);
      return value === null ? null : String(value);
    }),
  );
  return await query<PlantRow>(
    `INSERT INTO plants (${COLUMNS}) VALUES ${rows} ON CONFLICT (id) DO NOTHING RETURNING ${ROW}`,
    parameters,
  );
}

/**
 * Changes no row, but takes a write's locks on the table and on the shard. A shard move with `block_writes`
 * holds conflicting locks.
 */
const LOCK_SHARD = `UPDATE plants SET ${OTHER} = ${OTHER}
  WHERE id = $1::bigint AND ${OTHER} IS DISTINCT FROM ${OTHER}`;

async function lockShards({ query }: Connection, ids: ByShard): Promise<void> {
  for (const [id] of ids.values()) await query(LOCK_SHARD, [String(id)]);
}

/**
 * Reads the rows with these ids from the tables of their shards, because Citus takes ten times as long to plan
 * a query on `plants`.
 *
 * One statement, with one snapshot, does three things:
 *
 * - It reads the rows, even those that are not on any standby yet.
 * - It checks that the node has the shards. Otherwise their tables are left over from a move, and out of date.
 * - It writes a message to the WAL. Commits wait for the standby in WAL order, so the standby has the rows when
 *   the statement returns. On PostgreSQL, `FOR KEY SHARE` does that, but Citus refuses it. `INSERT … ON CONFLICT
 *   DO UPDATE … WHERE false` locks the rows, but does not write to the WAL: a client could get a 409 for a plant
 *   that a failover loses.
 *
 * @returns The rows by id; `undefined` if a shard has left the node.
 */
async function readStored(
  { query }: Connection,
  ids: ByShard,
): Promise<ReadonlyMap<string, PlantRow> | undefined> {
  const tables = [...ids.keys()].map(
    ({ table }, index) => `SELECT ${ROW} FROM ${table} WHERE id = ANY($${index + 2}::bigint[])`,
  );
  const statement = `SELECT stored.*, node.has_shards, node.position
    FROM (SELECT ${hasShards(ids.size)} AS has_shards,
        pg_logical_emit_message(true, 'plant-store', '') AS position) AS node
      LEFT JOIN (${tables.join(" UNION ALL ")}) AS stored ON true`;

  try {
    const rows = await query<PlantRow & { readonly has_shards: boolean }>(statement, [
      bigintArray([...ids.keys()].map(({ id }) => BigInt(id))),
      ...[...ids.values()].map(bigintArray),
    ]);
    if (rows[0]?.has_shards !== true) return undefined;
    return new Map(rows.flatMap((row) => (row.id === null ? [] : [[row.id, row]])));
  } catch (error) {
    // undefined_table
    if (codeOf(error) === "42P01") return undefined;
    throw error;
  }
}

/** Returns the SQL condition that the node has the shards `$1`. Its own catalog is never behind. */
function hasShards(count: number): string {
  return `(SELECT count(*) = ${count} FROM pg_dist_placement JOIN pg_dist_local_group USING (groupid)
    WHERE shardid = ANY($1::bigint[]) AND shardstate = 1)`;
}

/**
 * Wraps work that Citus may refuse while a shard moves: turns that error into a serialization failure, which
 * the pool repeats until the deadline.
 */
export function repeatingMoves<Result>(work: Work<Result>): Work<Result> {
  return async (connection, attempt) => {
    try {
      return await work(connection, attempt);
    } catch (error) {
      // feature_not_supported, undefined_table, object_not_in_prerequisite_state
      if (!["0A000", "42P01", "55000"].includes(codeOf(error))) throw error;
      throw new PostgresFailure("40001", (error as PostgresFailure).message);
    }
  };
}

/**
 * Verifies that a node could store a plant now: that its settings are safe, the table is not locked, and a
 * commit reaches the disk and the standby. Changes no row.
 *
 * @param id An id in one of the node's shards.
 */
export function probeNode(id: bigint): Work<void> {
  return async ({ query }) => {
    await query(LOCK_SHARD, [String(id)]);
    const [found] = await query<Durability>(
      `SELECT ${DURABILITY}, pg_logical_emit_message(true, 'plant-store', '')`,
    );
    if (found !== undefined) requireDurable(found);
  };
}

/**
 * Verifies that a connection leads to a node, because another server may have its address by now.
 *
 * @throws {PostgresFailure} `UNSAFE`. The message says in one line what is wrong.
 */
export async function verifyNode({ query }: Connection, node: NodeId): Promise<void> {
  const [found] = await query<{ readonly node: NodeId }>(
    "SELECT groupid AS node FROM pg_dist_local_group",
  );
  if (found?.node === node) return;
  throw new PostgresFailure("UNSAFE", `it is node ${found?.node} of Citus, not ${node}`);
}
