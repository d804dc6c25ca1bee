import type { TokenStore } from "../auth/token_store.ts";
import type { PlantStore } from "../group_commit/plant_store.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant/plant.ts";

/**
 * An open database. Whoever opens it disposes of it. `databaseContract()` tests that each adapter
 * does what these comments promise.
 */
export interface Database extends AsyncDisposable {
  readonly plants: PlantStore;

  readonly tokens: TokenStore;

  /**
   * Reads every plant that is stored when the iteration begins, and perhaps some that are stored later,
   * ordered by id. No page is empty. Holds no lock or snapshot between two pages.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  pages(): AsyncIterable<readonly NewPlant[]>;

  /**
   * Returns the stored plants with these ids, in any order.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  find(ids: readonly bigint[]): Promise<readonly NewPlant[]>;

  /**
   * Counts the stored plants.
   *
   * @throws {DatabaseError} If the database cannot be read.
   */
  count(): Promise<number>;

  /**
   * Deletes the plants with these ids, and ignores ids without a plant. Once it resolves, the deletion
   * survives a power loss or a failover.
   *
   * @throws {PlantStoreError} `storage_unavailable`: some of the plants may be deleted.
   */
  delete(ids: readonly bigint[]): Promise<void>;
}

/**
 * Thrown if a database cannot or must not be used. The message is for the operator, names the database
 * and contains no secret.
 */
export class DatabaseError extends Error {
  override readonly name = "DatabaseError";
}

/**
 * Thrown if a database or the connection to it fails. The message is the reason in words for the
 * operator, without secrets. Unlike that of a {@linkcode DatabaseError}, it does not name the database.
 */
export class DatabaseFailure extends Error {
  override readonly name: string = "DatabaseFailure";
}

/** The maximum number of plants in a page. */
export const PAGE_PLANTS = 4_000;
/** The length of texts after which a page ends, in bytes or UTF-16 code units: a name may be long. */
export const PAGE_TEXT = 2 ** 20;

/**
 * Reads all plants, a page at a time. Uses keyset pagination, so the cost of a page does not grow with its
 * offset.
 *
 * @param pageFrom Reads a page: the next plants with at least this id, ordered by id; none after the last
 *   plant.
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
