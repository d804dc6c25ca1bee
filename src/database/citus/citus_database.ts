import { backoffMs, pause, repeat, withDeadline } from "../../async/timers.ts";
import { PlantStoreError } from "../../errors.ts";
import type { PlantStore, StoreOutcome } from "../../group_commit/plant_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type {
  DatabaseAccess,
  DatabaseMetric,
  ReadOptions,
  ServingDatabase,
  ServingOptions,
} from "../adapter.ts";
import type { Database } from "../database.ts";
import {
  consequencesOf,
  PostgresFailure,
  rejectionOf,
  withDatabaseError,
} from "../postgres/errors.ts";
import { COMMIT_NOTHING } from "../postgres/pages.ts";
import { Pool } from "../postgres/pool.ts";
import {
  MAX_IN_FLIGHT,
  openPostgres,
  type Reached,
  READ_TIMEOUT_MS,
} from "../postgres/postgres_database.ts";
import { requireDistributed } from "./distribution.ts";
import { CitusNode } from "./node.ts";
import { type NodeId, nodesOf, type ShardMap, shardMapReader, shardOf } from "./shard_map.ts";
import { shardedCommit } from "./sharded_commit.ts";

/** How often the shard map is reloaded, in milliseconds. Meanwhile, a node forwards rows that have moved. */
const MAP_MS = 3_000;
/** The time limit for loading the shard map, in milliseconds. */
const MAP_TIMEOUT_MS = 10_000;

/** How to open a cluster. */
interface OpenOptions
  extends Pick<ServingOptions, "onCreate" | "onInfo">, Pick<ReadOptions, "onWarning"> {
  /** @default {"create"} */
  readonly access?: DatabaseAccess;
  /** @default {false} */
  readonly isServing?: boolean;
}

/**
 * Opens a database on Citus through its coordinator, for a command. Tokens are on the coordinator. Each
 * plant is sent to the node with its shard, over that node's own pool.
 *
 * @throws {DatabaseError} If the database cannot be used now. The message says why, in one line.
 */
export async function openCitus(reached: Reached, options?: OpenOptions): Promise<Database> {
  const cluster = await openCluster(reached, options);
  const { coordinator, nodes, add, settle } = cluster;
  const settleRead = () => withDatabaseError("read", reached.url.database, settle);

  return {
    plants: { add, probe: () => untilOne(nodes().map((node) => node.probe())) },
    tokens: coordinator.tokens,

    async *pages() {
      for await (const page of coordinator.pages()) {
        await settleRead();
        yield page;
      }
    },
    async find(ids) {
      const found = await coordinator.find(ids);
      await settleRead();
      return found;
    },
    count: coordinator.count,
    async delete(ids) {
      await coordinator.delete(ids);
      await settle();
    },

    [Symbol.asyncDispose]: cluster[Symbol.asyncDispose],
  };
}

/**
 * Opens a database on Citus for a server: as {@linkcode openCitus}, with a queue for each node. Probes every
 * node first.
 *
 * @throws {DatabaseError} If the database cannot be used now. The message says why, in one line.
 */
export async function serveCitus(
  reached: Reached,
  { makeQueue, create = false, onCreate, onWarning, onInfo = () => {} }: ServingOptions,
): Promise<ServingDatabase> {
  const access = create ? "create" : "write";

  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(
    await openCluster(reached, { access, isServing: true, onCreate, onWarning, onInfo }),
  );
  const { coordinator, map, nodeFor, nodes, add } = cluster;

  await withDatabaseError("open", reached.url.database, async () => {
    const timeoutMs = reached.url.connectTimeoutMs * (reached.url.hosts.length + 1);
    const verdicts = await Promise.allSettled(nodes().map((node) => node.probe(timeoutMs)));
    const failures = verdicts.flatMap((verdict) =>
      verdict.status === "rejected" ? [verdict.reason] : [],
    );
    // If a node is down, the others serve. An unsafe node stays unsafe until somebody acts.
    const refusal = failures.find(isLasting);
    if (refusal !== undefined) throw refusal;
    if (failures.length === verdicts.length) throw failures[0];
  });
  onInfo("Citus, experimental", { nodes: nodes().length, shards: map.current().shards.length });

  const opened = stack.move();
  return {
    plants: shardedCommit(
      ({ id }) => shardOf(map.current(), id).node,
      (id) => makeQueue({ add, probe: () => nodeFor(id).probe() }, MAX_IN_FLIGHT),
    ),

    /** Resolves once one node can store plants: one dead node must not take the service out of rotation. */
    ready: () => untilOne(nodes().map((node) => node.probe())),

    tokens: coordinator.tokens,
    metrics: () => [
      ...labelled("coordinator", coordinator.metrics()),
      ...nodes().flatMap((node) => labelled(String(node.id), node.metrics())),
    ],
    // Never fails for good: what a node has committed stays committed.
    failed: new Promise(() => {}),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

/** Resolves once one probe resolves. If all reject, rejects with the error of the first. */
async function untilOne(probes: readonly Promise<void>[]): Promise<void> {
  await Promise.any(probes).catch(({ errors }: AggregateError) => {
    throw errors[0];
  });
}

/** Opens the coordinator and the shard map. Opens a node when a plant is first sent to it. */
async function openCluster(
  reached: Reached,
  {
    access = "create",
    isServing = false,
    onCreate,
    onWarning = () => {},
    onInfo = () => {},
  }: OpenOptions = {},
) {
  const { url, servers } = reached;
  await requireDistributed(reached, { create: access === "create", onCreate });

  await using stack = new AsyncDisposableStack();
  const coordinator = stack.use(
    await openPostgres(reached, {
      access,
      isServing,
      maxInFlight: 1,
      acceptsDistributed: true,
      onWarning,
    }),
  );
  const map = stack.adopt(
    await withDatabaseError("open", url.database, () => openMap(reached)),
    ({ close }) => close(),
  );

  const opened = new Map<NodeId, CitusNode>();
  stack.defer(() => opened.forEach((node) => node.close()));
  const nodeOptions = {
    servers,
    map: map.current,
    onUnreachable: map.refresh,
    onVerdict(node: NodeId, failure: unknown) {
      if (failure === undefined) onInfo(`Node ${node} of Citus can store plants again`, {});
      else onWarning(`Node ${node} of Citus cannot store plants`, { cause: failure });
    },
  };
  const nodeFor = (id: NodeId) =>
    opened.getOrInsertComputed(id, () => new CitusNode(id, nodeOptions));
  const nodes = () => nodesOf(map.current()).map(nodeFor);

  const add: PlantStore["add"] = (plants, { timeoutMs }) =>
    addByMap(plants, { ...map, nodeFor, deadline: performance.now() + timeoutMs });

  const resources = stack.move();
  return {
    coordinator,
    map,
    nodeFor,
    /** The nodes that have shards. */
    nodes,
    add,
    /**
     * Resolves once the standby of every node has the rows that were read or deleted through the coordinator.
     *
     * @throws {PlantStoreError} `storage_unavailable`.
     */
    async settle() {
      const committed = nodes().map(({ pool }) =>
        pool.run(({ query }) => query(COMMIT_NOTHING), READ_TIMEOUT_MS),
      );
      await Promise.all(committed);
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

/** Loads the shard map now, and reloads it every {@linkcode MAP_MS}. */
async function openMap({ servers: { connect, current, suspect } }: Reached) {
  const pool = new Pool({ size: 1, connect, current, onSilence: suspect });
  const readShardMap = shardMapReader();
  const read = () => pool.run(readShardMap, MAP_TIMEOUT_MS);

  let map = await read().catch((error: unknown) => {
    pool.close();
    throw error;
  });
  let refreshing: Promise<void> | undefined;

  /** Reloads the map, unless a reload is under way. Never rejects: without the coordinator, the map stays. */
  function refresh(): Promise<void> {
    refreshing ??= read()
      .then(
        (newer) => void (map = newer),
        () => {},
      )
      .finally(() => (refreshing = undefined));
    return refreshing;
  }

  const timer = repeat(MAP_MS, refresh);
  return {
    /** Returns the newest map. */
    current: () => map,
    refresh,
    close() {
      timer[Symbol.dispose]();
      pool.close();
    },
  };
}

/** The context of {@linkcode addByMap}. */
interface Adding {
  current(): ShardMap;
  refresh(): Promise<void>;
  nodeFor(id: NodeId): CitusNode;
  /** When the caller gives up, by `performance.now()`. */
  readonly deadline: number;
}

/**
 * Adds plants to the nodes with their shards. If a shard has moved meanwhile, adds its plants again with the
 * new map. Only the node that has a plant may report it as present, because no other node waits for that
 * node's standby.
 */
async function addByMap(
  plants: readonly NewPlant[],
  { current, refresh, nodeFor, deadline }: Adding,
): Promise<readonly StoreOutcome[]> {
  const outcomes: StoreOutcome[] = plants.map(() => "unavailable");
  let pending: readonly number[] = [...plants.keys()];

  for (let attempt = 0; ; attempt++) {
    const map = current();
    const byNode = Map.groupBy(
      pending,
      (index) => shardOf(map, (plants[index] as NewPlant).id).node,
    );

    const moved = await Promise.all(
      [...byNode].map(async ([id, indexes]) => {
        const own = indexes.map((index) => plants[index] as NewPlant);
        const result = await nodeFor(id).add(own, map, deadline);
        indexes.forEach((index, at) => (outcomes[index] = result.outcomes[at] as StoreOutcome));
        return result.hasMoved ? indexes.filter((index) => outcomes[index] === "unavailable") : [];
      }),
    );

    pending = moved.flat();
    if (pending.length === 0) return outcomes;
    if (attempt > 0) await pause(backoffMs(attempt));
    await withDeadline(refresh(), deadline - performance.now(), () => {
      throw rejectionOf(new PostgresFailure("DEADLINE"));
    });
  }
}

function isLasting(error: unknown): boolean {
  return error instanceof PlantStoreError && consequencesOf(error.cause).isLasting;
}

function labelled(node: string, metrics: readonly DatabaseMetric[]): readonly DatabaseMetric[] {
  return metrics.map((metric) => ({ ...metric, labels: { ...metric.labels, node } }));
}
