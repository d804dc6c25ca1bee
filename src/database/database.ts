import type { TokenStore } from "../auth/token_store.ts";
import type { PlantStore } from "../group_commit/plant_store.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant/plant.ts";

/**
 * The port of databases. Whoever opens a database disposes of it. `databaseContract()` holds each
 * adapter to these comments.
 */
export interface Database extends AsyncDisposable {
  readonly plants: PlantStore;

  readonly tokens: TokenStore;

  /**
   * Every plant that is stored when the iteration begins, ordered by id, and perhaps some that are
   * stored later; never an empty page. Holds no lock and no snapshot between two pages.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  pages(): AsyncIterable<readonly NewPlant[]>;

  /**
   * The stored plants with these ids, in any order.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  find(ids: readonly bigint[]): Promise<readonly NewPlant[]>;

  /**
   * How many plants are stored.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  count(): Promise<number>;

  /**
   * Deletes the plants with these ids, and leaves out those that are not stored. Once it resolves,
   * they are gone even after a power loss or a failover.
   *
   * @throws {PlantStoreError} `storage_unavailable`: some may be deleted.
   */
  delete(ids: readonly bigint[]): Promise<void>;
}

/**
 * A database must not or cannot be used. The message is for the operator: it names the database,
 * and no secret.
 */
export class DatabaseError extends Error {
  override readonly name = "DatabaseError";
}

/**
 * A database, or the connection to it, has failed. The message is the reason in words for the
 * operator, without a secret. It does not name the database, as a {@linkcode DatabaseError} does.
 */
export class DatabaseFailure extends Error {
  override readonly name: string = "DatabaseFailure";
}

/** How many plants a page has at most. */
export const PAGE_PLANTS = 4_000;
/**
 * A page ends after the plant whose texts make it this long, in bytes or in UTF-16 code units: a
 * name may be long.
 */
export const PAGE_TEXT = 2 ** 20;

/**
 * Reads all plants, or other items with an id, a page at a time. It pages by key and not by offset, so
 * the cost of a page does not grow with the number of items before it.
 *
 * @param pageFrom Reads a page: some items with this id or a greater one, ordered by id; none
 *   after the last item.
 */
export async function* keysetPages<Item extends Pick<NewPlant, "id">>(
  pageFrom: (id: bigint) => readonly Item[] | Promise<readonly Item[]>,
): AsyncGenerator<readonly Item[]> {
  let page = await pageFrom(INT64_MIN);
  for (let last = page.at(-1); last !== undefined; last = page.at(-1)) {
    yield page;
    page = last.id === INT64_MAX ? [] : await pageFrom(last.id + 1n);
  }
}
