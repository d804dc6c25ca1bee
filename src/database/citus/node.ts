import type { StoreOutcome } from "../../group_commit/plant_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { DatabaseMetric } from "../adapter.ts";
import { PostgresFailure } from "../postgres/errors.ts";
import { Pool, poolMetrics, type Work } from "../postgres/pool.ts";
import { MAX_IN_FLIGHT, PROBE_TIMEOUT_MS, type Reached } from "../postgres/postgres_database.ts";
import { batchAdder } from "../postgres/postgres_plants.ts";
import {
  MAX_PLANTS,
  probeNode,
  repeatingMoves,
  statementsFor,
  verifyNode,
} from "./citus_plants.ts";
import { type NodeId, nodesOf, type ShardMap, shardOf } from "./shard_map.ts";

/** Options of {@linkcode CitusNode}. */
interface CitusNodeOptions {
  /** The servers of the coordinator. Each node is another host with the same role and database. */
  readonly servers: Reached["servers"];
  /** Returns the newest map. */
  readonly map: () => ShardMap;
  /** Called if the node cannot be reached: the map may be old. */
  readonly onUnreachable: () => void;
  /** Called with the reason when probes begin to fail, and with `undefined` when they succeed again. */
  readonly onVerdict: (node: NodeId, failure: unknown) => void;
}

/** One node of a cluster. It has its own pool, so a node that is blocked does not block others. */
export class CitusNode {
  /** The group of the node in `pg_dist_node`; 0 is the coordinator's. */
  readonly id: NodeId;
  /** The pool for plants. The probe uses it too, because whatever blocks it blocks every plant of the node. */
  readonly pool: Pool;
  readonly #map: () => ShardMap;
  readonly #onVerdict: CitusNodeOptions["onVerdict"];
  readonly #addBatch = batchAdder();
  #probing: Promise<void> | undefined;
  /** Why the last probe failed; `undefined` if it did not. */
  #failure: unknown;

  constructor(id: NodeId, { servers: coordinator, map, ...events }: CitusNodeOptions) {
    this.id = id;
    this.#map = map;
    this.#onVerdict = events.onVerdict;

    // The map may name another server later.
    const hosts = () => this.#map().hosts.get(id) ?? [];
    const servers = id === 0 ? coordinator : coordinator.at(hosts);
    const connect = async () => {
      try {
        if (id !== 0 && hosts().length === 0)
          throw new PostgresFailure("NO_SERVER", "the coordinator no longer names a server for it");
        return await servers.connect({
          searchPath: this.#map().schema,
          verify: (connection) => verifyNode(connection, id),
          prepares: false,
        });
      } catch (error) {
        events.onUnreachable();
        throw error;
      }
    };

    const { current, suspect } = servers;
    this.pool = new Pool({ size: MAX_IN_FLIGHT, connect, current, onSilence: suspect });
  }

  /**
   * Adds plants that belong to the node by this map.
   *
   * @returns Their outcomes, and whether a shard has left the node. If so, an `unavailable` plant may belong to
   *   another node.
   */
  async add(
    batch: readonly NewPlant[],
    map: ShardMap,
    deadline: number,
  ): Promise<{ readonly outcomes: readonly StoreOutcome[]; readonly hasMoved: boolean }> {
    const outcomes: StoreOutcome[] = [];
    let hasMoved = false;
    const statements = statementsFor(map, () => (hasMoved = true));

    for (let start = 0; start < batch.length; start += MAX_PLANTS) {
      const part = batch.slice(start, start + MAX_PLANTS);
      const work: Work<readonly StoreOutcome[]> = (connection) =>
        this.#addBatch(connection, part, deadline, statements);
      outcomes.push(...(await this.pool.run(repeatingMoves(work), deadline - performance.now())));
    }
    return { outcomes, hasMoved };
  }

  /**
   * Verifies that the node could store a plant now. Only one probe runs at a time, because readiness
   * does not wait for a node that hangs.
   *
   * @throws {PlantStoreError} `storage_unavailable` if not.
   */
  probe(timeoutMs = PROBE_TIMEOUT_MS): Promise<void> {
    this.#probing ??= this.#probe(timeoutMs).finally(() => (this.#probing = undefined));
    return this.#probing;
  }

  async #probe(timeoutMs: number): Promise<void> {
    const before = this.#failure;
    try {
      const id = idOn(this.#map(), this.id);
      if (id !== undefined) await this.pool.run(repeatingMoves(probeNode(id)), timeoutMs);
      this.#failure = undefined;
      if (before !== undefined) this.#onVerdict(this.id, undefined);
    } catch (error) {
      this.#failure = error;
      if (before === undefined) this.#onVerdict(this.id, error);
      throw error;
    }
  }

  /** Returns the current metrics, without labels. */
  metrics(): readonly DatabaseMetric[] {
    const ready: DatabaseMetric = {
      name: "plant_store_citus_node_ready",
      help: "1 if the node could store a plant at the last probe, else 0",
      type: "gauge",
      value: Number(this.#failure === undefined),
    };
    return [ready, ...poolMetrics([this.pool])];
  }

  close(): void {
    this.pool.close();
  }
}

/** Returns an id in one of a node's shards; `undefined` if it has none. */
function idOn(map: ShardMap, node: NodeId): bigint | undefined {
  if (!nodesOf(map).includes(node)) return undefined;
  for (let id = 0n; ; id++) if (shardOf(map, id).node === node) return id;
}
