import type { TokenStore } from "../auth/token_store.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant/plant.ts";

/**
 * The port that every database stands behind: what it keeps. The caller that opens it disposes of it.
 * `databaseContract` of `plant-store/testing` holds each adapter to these comments.
 *
 * @example How many plants a database has
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Database, memoryDatabase } from "plant-store";
 *
 * async function countPlants(database: Database): Promise<number> {
 *   let count = 0;
 *   for await (const page of database.pages()) count += page.length;
 *   return count;
 * }
 * const database = memoryDatabase();
 * await database.plants.add([{ id: 1n, name: "Fern" }], { timeoutMs: 1_000 });
 *
 * assert.equal(await countPlants(database), 1);
 * ```
 */
export interface Database extends AsyncDisposable {
  readonly plants: PlantStore;
  readonly tokens: TokenStore;

  /**
   * Every plant that is stored when the iteration begins, ordered by id, and perhaps some that come later; never an
   * empty page. Between two pages nothing is held: no lock, and no snapshot.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  pages(): AsyncIterable<readonly NewPlant[]>;

  /** The metrics of the database, as they are now. It costs microseconds, and waits for nothing. */
  metrics(): readonly DatabaseMetric[];

  /**
   * Resolves with the cause once nothing may be acknowledged (fail-stop): every call rejects from then on, and
   * only a new process can find out what is stored. Pending while the database works; never rejects.
   */
  readonly failed: Promise<Error>;
}

/** One metric of a database, in the terms of Prometheus. */
export interface DatabaseMetric {
  /** With its unit, and `_total` if it is a counter. */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  readonly value: number;
}

/**
 * A database that must not or cannot be used. For the operator: the message names the database, and no secret.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { DatabaseError } from "plant-store";
 *
 * const error = new DatabaseError("Cannot open plants.db: it belongs to another application");
 *
 * assert.equal(error.name, "DatabaseError");
 * ```
 */
export class DatabaseError extends Error {
  override readonly name = "DatabaseError";
}

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
  /** The caller's timeout, in milliseconds. */
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
   * Stores a batch in one transaction, or in several if it is very large, and gives each plant's own outcome, in
   * order. Once the promise resolves, every plant `added` or `present` survives a crash of the process and of the
   * machine. A plant that the database could not take, such as one whose row another transaction has locked, is
   * `unavailable` and delays the others briefly; a database without such locks never returns that.
   *
   * A plant may stand in the batch more than once: the first one counts, the others are compared with it.
   * An id already taken is an outcome of that plant only. Several batches may be in flight at once, here and in other
   * processes, even with the same ids: of each id one plant is `added`. A batch may have 10,000 plants.
   *
   * If the promise rejects, the outcome of the whole batch is unknown, and adding the same batch again is safe.
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

/** How many plants a page has at most. */
export const PAGE_PLANTS = 4_000;
/** A page ends behind the plant whose texts make it this long, in bytes or in UTF-16 code units: a name may be long. */
export const PAGE_TEXT = 2 ** 20;

/**
 * Reads all plants a page at a time, by key and not by offset: plants are never changed and never deleted, so the next
 * page begins where the last one ended, and its cost does not grow with how many came before.
 *
 * @param pageFrom Reads a page: some plants with this id or a greater one, ordered by id; none after the last one.
 */
export async function* keysetPages(
  pageFrom: (id: bigint) => readonly NewPlant[] | Promise<readonly NewPlant[]>,
): AsyncGenerator<readonly NewPlant[]> {
  let page = await pageFrom(INT64_MIN);
  for (let last = page.at(-1); last !== undefined; last = page.at(-1)) {
    yield page;
    page = last.id === INT64_MAX ? [] : await pageFrom(last.id + 1n);
  }
}
