import type { NewPlant } from "../plant/plant.ts";

/**
 * What became of one plant:
 * - `added`: it is stored now, and was not before;
 * - `present`: the identical plant was stored before; nothing changed;
 * - `conflict`: a different plant holds the id; that one is unchanged.
 */
export type AddOutcome = "added" | "present" | "conflict";

/**
 * What a store gives for one plant: its outcome, or `unavailable` if this call did not store it, such as when another
 * transaction holds its row. Adding it again is safe, and its client hears `storage_unavailable`.
 */
export type StoreOutcome = AddOutcome | "unavailable";

/** How to add a batch. */
export interface AddOptions {
  /** How long the store may try, in milliseconds: after it, the caller has given up. */
  readonly timeoutMs: number;
}

/**
 * The port that stores plants. `plantStoreContract` of `plant-store/testing` holds each adapter to these comments.
 *
 * @example A store that takes the first plant of every id
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Plant, type PlantStore, samePlant } from "plant-store";
 *
 * const rows = new Map<bigint, Plant>();
 * const store: PlantStore = {
 *   add: async (plants) =>
 *     plants.map(({ id, ...plant }) => {
 *       const stored = rows.get(id);
 *       if (stored !== undefined) return samePlant(stored, plant) ? "present" : "conflict";
 *       rows.set(id, plant);
 *       return "added";
 *     }),
 *   probe: async () => {},
 * };
 * const fern = { id: 1n, name: "Fern" };
 *
 * assert.deepEqual(await store.add([fern, fern], { timeoutMs: 1_000 }), ["added", "present"]);
 * ```
 */
export interface PlantStore {
  /**
   * Stores a batch in one transaction, or in several where it is very large, and gives each plant's own outcome, in
   * order. Once the promise resolves, every plant `added` or `present` survives a crash of the process and of the
   * machine. A plant that the database could not take, such as one whose row another transaction has locked, is
   * `unavailable` and delays the others briefly; a database without such locks never returns that.
   *
   * A plant may stand in the batch more than once: the first one counts, the others are compared with it.
   * An id already taken is an outcome of that plant only. Several batches may be in flight at once, here and in other
   * processes, also with the same ids: of each id one plant is `added`. A batch may have 10,000 plants. When the promise rejects, the outcome of the whole
   * batch is unknown, and adding the same batch again is safe.
   *
   * @throws {PlantStoreError} `storage_unavailable` if the database cannot take plants now.
   */
  add(plants: readonly NewPlant[], options: AddOptions): Promise<readonly StoreOutcome[]>;

  /**
   * Resolves when a plant could be stored now: it commits to the database, without touching a plant.
   *
   * @throws {PlantStoreError} `storage_unavailable` if not.
   */
  probe(): Promise<void>;
}
