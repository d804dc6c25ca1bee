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
/** The columns, each under the name of its field. */
const ROW = FIELDS.map((field) => `${columnOf(field)} AS "${field}"`);
const TYPES = FIELDS.map((field) => plants[field].getSQLType());
/** Any column but the id: Citus allows no change of that one. */
const [, OTHER] = COLUMNS;

/** A statement has at most 65,535 parameters: so many plants fit into one. */
export const MAX_PLANTS = Math.floor(65_535 / FIELDS.length);

/** The column of a field, quoted: its name may be a word of SQL. */
function columnOf(field: keyof NewPlant): string {
  return `"${plants[field].name}"`;
}

/** The ids of a batch, by the shards that have them. */
type ByShard = ReadonlyMap<Shard, readonly bigint[]>;

/**
 * The statements for a batch of one node, on a connection to that node itself.
 *
 * @param map Says that the node has all plants of the batch. It may be old.
 * @param onMoved Called if a shard has left the node. Its plants that are not `added` have no
 *   outcome.
 */
export function statementsFor(map: ShardMap, onMoved: () => void): PlantStatements {
  return {
    insert: (connection, plants) => insert(connection, plants),
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
 * Citus splits rows of `VALUES` by their shards. `INSERT … SELECT FROM unnest(…)`, as on one
 * PostgreSQL, would go through the coordinator.
 *
 * A row whose shard has left the node is forwarded to the one that has it, and waits for the standby
 * there: a map that is older than a move costs time, and never a plant.
 *
 * BUG: `alter_distributed_table` and the like block writers only on the coordinator. What is stored
 * while they copy the table is lost.
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
 * Changes no row, but takes the locks of a write: on the table, and on the shard. A move with
 * `block_writes` holds them.
 */
const LOCK_SHARD = `UPDATE plants SET ${OTHER} = ${OTHER}
  WHERE id = $1::bigint AND ${OTHER} IS DISTINCT FROM ${OTHER}`;

async function lockShards({ query }: Connection, ids: ByShard): Promise<void> {
  for (const [id] of ids.values()) await query(LOCK_SHARD, [String(id)]);
}

/**
 * Reads the rows of some ids from the tables of their shards: Citus takes ten times as long to plan
 * a query on `plants`.
 *
 * One statement, with one snapshot, does three things:
 *
 * - It reads the rows, even those that no standby has yet.
 * - It reads whether the node has the shards. Otherwise their tables are left over from a move, and
 *   lack changes.
 * - It writes a message to the WAL. Commits wait for the standby in the order of the WAL, so the
 *   standby has the rows when the statement returns. On PostgreSQL `FOR KEY SHARE` does that, which
 *   Citus refuses. `INSERT … ON CONFLICT DO UPDATE … WHERE false` would lock the rows, but writes
 *   nothing to the WAL: a rival would get 409 for a plant that a failover takes back.
 *
 * @returns The rows by their ids; `undefined` if a shard has left the node.
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

/** Whether the node has the shards `$1`, by its own catalog: no other is newer. */
function hasShards(count: number): string {
  return `(SELECT count(*) = ${count} FROM pg_dist_placement JOIN pg_dist_local_group USING (groupid)
    WHERE shardid = ANY($1::bigint[]) AND shardstate = 1)`;
}

/**
 * Runs work that Citus may refuse while a shard moves: as a serialization failure, which is repeated
 * until the deadline.
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
 * Verifies that a node could store a plant now: its settings, that the table is not locked, and
 * that a commit reaches the disk and the standby. Changes no row.
 *
 * @param id An id whose plant the node has, or would have.
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
 * Verifies that a connection leads to a node: another server may have its address.
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
