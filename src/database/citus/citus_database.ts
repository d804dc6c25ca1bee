import { backoffMs, pause, repeat, withDeadline } from "../../async/timers.ts";
import { PlantStoreError } from "../../errors.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { Access, ServingOptions } from "../adapter.ts";
import type {
  AddOptions,
  Database,
  DatabaseMetric,
  PlantStore,
  StoreOutcome,
} from "../database.ts";
import {
  consequencesOf,
  PostgresFailure,
  toDatabaseError,
  unavailable,
  withDatabaseError,
} from "../postgres/errors.ts";
import { failover } from "../postgres/failover.ts";
import { Pool } from "../postgres/pool.ts";
import { openPostgres } from "../postgres/postgres_database.ts";
import type { PostgresUrl } from "../postgres/url.ts";
import { CitusNode } from "./node.ts";
import { type NodeId, nodesOf, type ShardMap, shardMapReader, shardOf } from "./shard_map.ts";
import { mergedPages } from "./shard_pages.ts";

/** How a Citus cluster is opened. */
export interface CitusOptions extends ServingOptions {
  /** @default {"create"} */
  readonly access?: Access;
  /** Whether a server opens it: then every node is probed first. @default {false} */
  readonly isServing?: boolean;
  /** Reads the URL again, whose password may be rotated. @default the URL stays the same */
  readonly readUrl?: (() => Promise<PostgresUrl>) | undefined;
  /**
   * How long a server is ready, and accepts tokens, without the coordinator, in milliseconds.
   *
   * @default {COORDINATOR_TIMEOUT_MS}
   */
  readonly coordinatorTimeoutMs?: number;
}

/** How often the map is read, in milliseconds. Until then, a node forwards rows that have moved. */
const MAP_MS = 3_000;
/** The time limit for reading the map, in milliseconds. */
const MAP_TIMEOUT_MS = 10_000;
/**
 * How long a server is ready, and accepts tokens, without the coordinator, in milliseconds. It
 * stores plants, but does not see that a token is revoked. A restart or a failover of the coordinator takes seconds, and
 * repairing it by hand minutes. A stolen token works no longer than this.
 */
const COORDINATOR_TIMEOUT_MS = 10 * 60 * 1_000;

/**
 * Opens a database on Citus by the URL of its coordinator. Tokens are on the coordinator. Each plant
 * is sent to the node that has its shard, over a pool for that node.
 *
 * @throws {DatabaseError} If it cannot be used now. The message says why, in one line.
 */
export async function openCitus(url: PostgresUrl, options: CitusOptions = {}): Promise<Database> {
  const { access = "create", isServing = false, readUrl } = options;
  const { onWarning = () => {}, onInfo = () => {} } = options;
  const { coordinatorTimeoutMs = COORDINATOR_TIMEOUT_MS } = options;

  await using stack = new AsyncDisposableStack();
  const coordinator = stack.use(
    await openPostgres(url, { access, isServing, readUrl, maxInFlight: 1 }),
  );
  const cluster = stack.adopt(
    await withDatabaseError("open", url.database, () => openMap()),
    ({ close }) => close(),
  );

  const nodes = new Map<NodeId, CitusNode>();
  stack.defer(() => nodes.forEach((node) => node.close()));
  const nodeOptions = { url, readUrl, map: cluster.map, onUnreachable: cluster.refresh };
  const nodeFor = (id: NodeId) =>
    nodes.getOrInsertComputed(id, () => new CitusNode(id, nodeOptions));
  const nodesWithShards = () => nodesOf(cluster.map()).map(nodeFor);

  /** Probes a node, and says if it can store plants again, or no longer. */
  async function probe(node: CitusNode, timeoutMs?: number): Promise<void> {
    const before = node.failure;
    await node.probe(timeoutMs).catch(() => {});

    const { failure } = node;
    if (before === undefined && failure !== undefined)
      onWarning(`Node ${node.id} of Citus cannot store plants`, failure);
    if (before !== undefined && failure === undefined)
      onInfo(`Node ${node.id} of Citus can store plants again`, {});
    if (failure !== undefined) throw failure;
  }

  if (isServing) {
    await withDatabaseError("open", url.database, async () => {
      const timeoutMs = url.connectTimeoutMs * (url.hosts.length + 1);
      const verdicts = await Promise.allSettled(
        nodesWithShards().map((node) => probe(node, timeoutMs)),
      );
      const failures = verdicts.flatMap((verdict) =>
        verdict.status === "rejected" ? [verdict.reason] : [],
      );
      // A node that is down keeps no other from serving. One that is unsafe stays so.
      const refusal = failures.find(isLasting);
      if (refusal !== undefined) throw refusal;
      if (failures.length === verdicts.length) throw failures[0];
    });
    const { shards } = cluster.map();
    onInfo("Citus, experimental", { nodes: nodesWithShards().length, shards: shards.length });
  }

  const add = (plants: readonly NewPlant[], { timeoutMs }: AddOptions) =>
    addByMap(plants, { ...cluster, nodeFor, deadline: performance.now() + timeoutMs });

  const stores = new Map<NodeId, PlantStore>();
  const storeOf = ({ id }: NewPlant) => {
    const { node } = shardOf(cluster.map(), id);
    return stores.getOrInsertComputed(node, () => ({ add, probe: () => probe(nodeFor(node)) }));
  };

  const opened = stack.move();
  return {
    plants: {
      add,
      /** Resolves once one node can store plants: a dead one must not empty the load balancer. */
      async probe() {
        if (cluster.ageMs() > coordinatorTimeoutMs) {
          const message = "storage has not seen its coordinator for too long";
          throw new PlantStoreError("storage_unavailable", message);
        }

        const probes = nodesWithShards().map((node) => probe(node));
        await Promise.any(probes).catch(({ errors }: AggregateError) => {
          throw errors[0];
        });
      },
    },
    storeOf,
    unready: () =>
      nodesWithShards().flatMap(({ id, failure }) => (failure === undefined ? [] : [`node ${id}`])),
    tokens: coordinator.tokens,
    tokensMaxAgeMs: coordinatorTimeoutMs,

    async *pages() {
      try {
        yield* mergedPages(cluster.readNow, nodeFor);
      } catch (error) {
        throw toDatabaseError("read", url.database, error);
      }
    },

    metrics: () => [
      ...labelled("coordinator", coordinator.metrics()),
      ...nodesWithShards().flatMap((node) => labelled(String(node.id), node.metrics())),
    ],
    failed: coordinator.failed,
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };

  /** Reads the map of shards at once, and then again and again. */
  async function openMap() {
    const servers = failover(url, { readUrl });
    const { connect, current, suspect } = servers;
    const pool = new Pool({ size: 1, connect, current, onSilence: suspect });
    const readShardMap = shardMapReader();

    let map = await pool.run(readShardMap, MAP_TIMEOUT_MS).catch((error: unknown) => {
      pool.close();
      throw error;
    });
    let readAt = performance.now();
    /** Since when the map cannot be read; `undefined` while it can. */
    let awaySince: Date | undefined;
    let refreshing: Promise<void> | undefined;

    async function readNow(): Promise<ShardMap> {
      map = await pool.run(readShardMap, MAP_TIMEOUT_MS);
      readAt = performance.now();
      return map;
    }

    async function read(): Promise<void> {
      const began = new Date();
      try {
        await readNow();
        if (awaySince !== undefined)
          onInfo("Coordinator is back: revoked tokens are refused again", { away: awaySince });
        awaySince = undefined;
      } catch (error) {
        if (awaySince !== undefined) return;
        awaySince = began;
        const since = began.toISOString();
        onWarning(
          `Coordinator does not respond: plants are stored, but tokens that are revoked after ${since} are accepted`,
          error,
        );
      }
    }

    /** Reads the map again; one read at a time. Never rejects. */
    function refresh(): Promise<void> {
      refreshing ??= read().finally(() => (refreshing = undefined));
      return refreshing;
    }

    const timer = repeat(MAP_MS, refresh);
    return {
      /** The newest map that was read. */
      map: () => map,
      /** How old it is, in milliseconds. */
      ageMs: () => performance.now() - readAt,
      refresh,
      /** Reads the map now. */
      readNow,
      close() {
        timer[Symbol.dispose]();
        pool.close();
      },
    };
  }
}

/** What {@linkcode addByMap} adds with. */
interface Adding {
  map(): ShardMap;
  refresh(): Promise<void>;
  nodeFor(id: NodeId): CitusNode;
  /** By `performance.now()`. */
  readonly deadline: number;
}

/**
 * Adds plants to the nodes that have them. If a shard has moved meanwhile, its plants are added again
 * by the new map: a plant that is found is acknowledged by the node that has it only, because no
 * other waits for the standby of that one.
 */
async function addByMap(
  plants: readonly NewPlant[],
  { map, refresh, nodeFor, deadline }: Adding,
): Promise<readonly StoreOutcome[]> {
  const outcomes: StoreOutcome[] = plants.map(() => "unavailable");
  let pending: readonly number[] = [...plants.keys()];

  for (let attempt = 0; ; attempt++) {
    const current = map();
    const byNode = Map.groupBy(
      pending,
      (index) => shardOf(current, (plants[index] as NewPlant).id).node,
    );

    const moved = await Promise.all(
      [...byNode].map(async ([id, indexes]) => {
        const own = indexes.map((index) => plants[index] as NewPlant);
        const result = await nodeFor(id).add(own, current, deadline);
        indexes.forEach((index, at) => (outcomes[index] = result.outcomes[at] as StoreOutcome));
        return result.hasMoved ? indexes.filter((index) => outcomes[index] === "unavailable") : [];
      }),
    );

    pending = moved.flat();
    if (pending.length === 0) return outcomes;
    if (attempt > 0) await pause(backoffMs(attempt));
    await withDeadline(refresh(), deadline - performance.now(), () => {
      throw unavailable(new PostgresFailure("DEADLINE"));
    });
  }
}

function isLasting(error: unknown): boolean {
  return error instanceof PlantStoreError && consequencesOf(error.cause).isLasting;
}

function labelled(node: string, metrics: readonly DatabaseMetric[]): readonly DatabaseMetric[] {
  return metrics.map((metric) => ({ ...metric, labels: { node } }));
}
