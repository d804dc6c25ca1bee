import { PostgresFailure } from "../postgres/errors.ts";
import type { Work } from "../postgres/pool.ts";
import type { PostgresHost } from "../postgres/url.ts";
import { hashint8 } from "./hash.ts";

/**
 * A node of a Citus cluster: its group in `pg_dist_node`. A promoted standby is another host of the same node.
 */
export type NodeId = number;

/** A part of the table `plants`: the rows whose hash is within a range. */
export interface Shard {
  readonly id: string;
  /** The table with the rows on the node: quoted, with its schema. */
  readonly table: string;
  /** The lower bound of its hashes. */
  readonly min: number;
  readonly node: NodeId;
}

/** The shards of the plants, and their nodes. */
export interface ShardMap {
  /** All shards, ordered by `min`, without gaps. */
  readonly shards: readonly Shard[];
  /** The servers of each node, starting with the one that Citus uses. */
  readonly hosts: ReadonlyMap<NodeId, readonly PostgresHost[]>;
  /** The schema of `plants`, quoted. */
  readonly schema: string;
}

interface ShardRow extends Shard {
  readonly schema: string;
  readonly max: number;
}

interface ServerRow extends PostgresHost {
  readonly node: NodeId;
}

/** Selects the shards. Only a finished placement (`shardstate = 1`) has all rows. */
const SHARDS = `SELECT shardid::text AS id, quote_ident(nspname) AS schema,
    quote_ident(nspname) || '.' || quote_ident(relname || '_' || shardid) AS table,
    shardminvalue::int AS min, shardmaxvalue::int AS max, groupid AS node
  FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
    JOIN pg_catalog.pg_class ON pg_class.oid = logicalrelid
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
  WHERE logicalrelid = 'plants'::regclass AND shardstate = 1 ORDER BY shardminvalue::int, groupid`;

/**
 * Selects the servers. Includes secondaries, because one may have been promoted: connecting shows which server
 * accepts writes. Ignores `metadatasynced`: Citus moves no shard while a node with metadata is out of date.
 *
 * BUG: a node without metadata (`stop_metadata_sync_to_node`) stores plants in the table that a move has left
 * over.
 */
const NODES = `SELECT groupid AS node, nodename AS host, nodeport AS port
  FROM pg_dist_node WHERE isactive ORDER BY groupid, noderole = 'primary' DESC, nodeid`;

/**
 * Returns the work that loads the map from the coordinator. A server is the same object in every map, because
 * pools compare servers by identity.
 *
 * @throws {PostgresFailure} `UNSAFE` if a hash has no shard, or several copies.
 */
export function shardMapReader(): Work<ShardMap> {
  const known = new Map<string, PostgresHost>();

  return async ({ query }) => {
    const shards = await query<ShardRow>(SHARDS);
    const servers = await query<ServerRow>(NODES);
    requireOneCopyOfAll(shards);

    const hosts = new Map<NodeId, PostgresHost[]>();
    for (const { node, host, port } of servers) {
      const server = known.getOrInsert(`${host}:${port}`, { host, port });
      hosts.getOrInsertComputed(node, () => []).push(server);
    }
    return { shards, hosts, schema: shards[0]?.schema ?? "" };
  };
}

const INT4_MIN = -(2 ** 31);
const INT4_MAX = 2 ** 31 - 1;

/** Refuses several copies of a shard, which would need two-phase commit, and a hash without a shard. */
function requireOneCopyOfAll(shards: readonly ShardRow[]): void {
  const isComplete =
    shards.at(-1)?.max === INT4_MAX &&
    shards.every(({ min }, index) => min === (shards[index - 1]?.max ?? INT4_MIN - 1) + 1);
  if (isComplete) return;

  throw new PostgresFailure(
    "UNSAFE",
    "plants is not distributed by id with one copy of each shard: set citus.shard_replication_factor to 1",
  );
}

/** Returns the nodes that have shards. */
export function nodesOf({ shards }: ShardMap): readonly NodeId[] {
  return [...new Set(shards.map(({ node }) => node))];
}

/** Returns the shard for an id. */
export function shardOf({ shards }: ShardMap, id: bigint): Shard {
  const hash = hashint8(id);
  let low = 0;
  let high = shards.length - 1;

  // Binary search for the last shard with `min` at or below the hash.
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((shards[middle] as Shard).min <= hash) low = middle;
    else high = middle - 1;
  }

  return shards[low] as Shard;
}
