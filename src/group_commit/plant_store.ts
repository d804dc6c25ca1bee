import type { NewPlant } from "../plant/plant.ts";

/**
 * The outcome of adding one plant:
 *
 * - `added`: the plant was not stored before, and is now;
 * - `present`: the identical plant was stored before; nothing changed;
 * - `conflict`: a different plant has the id, and is unchanged.
 */
export type AddOutcome = "added" | "present" | "conflict";

/**
 * A store's result for one plant: its outcome, or `unavailable` if this call did not store it. For
 * example, another transaction has locked its row. Adding the plant again later is safe; its client
 * gets `storage_unavailable`.
 */
export type StoreOutcome = AddOutcome | "unavailable";

/** Options of `add`. */
export interface AddOptions {
  /**
   * How long the call may take, in milliseconds. `groupCommit()` keeps the last tenth of its own
   * timeout, to tell the clients why a call failed.
   */
  readonly timeoutMs: number;
}

/**
 * The port that stores plants. `plantStoreContract` of `plant-store/testing` tests an adapter
 * against these comments.
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
   * Stores a batch in one transaction, or in several if it is very large, and resolves to the
   * outcome of each plant, in order. Once it resolves, every plant that is `added` or `present`
   * survives a crash of the process and of the machine.
   *
   * A plant whose row another transaction has locked is `unavailable`, up to a few seconds after
   * the lock is released. It delays the other plants briefly. Databases without row locks never
   * return `unavailable`.
   *
   * An id may occur in the batch more than once: the first plant counts, the others are compared
   * with it. A conflict is an outcome of one plant only. Several batches may be in flight at once,
   * in this process and in others, even with the same ids: one plant of each id is `added`. A batch
   * may have 10,000 plants.
   *
   * If the promise rejects, the outcome of the whole batch is unknown, and adding the same batch
   * again is safe.
   *
   * @throws {PlantStoreError} `storage_unavailable` if the database cannot take plants now;
   *   `internal` if it refuses the data of a plant, as an operator's constraint can. Then
   *   `groupCommit()` adds the batch again in halves, and only that plant fails.
   */
  add(plants: readonly NewPlant[], options: AddOptions): Promise<readonly StoreOutcome[]>;

  /**
   * Resolves if a plant could be stored now: it commits to the database, but changes no plant. It
   * must settle: until then, no other probe begins.
   *
   * @throws {PlantStoreError} `storage_unavailable` if not.
   */
  probe(): Promise<void>;
}
