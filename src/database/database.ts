import type { NewPlant } from "../plant/plant.ts";
import type { PlantStore } from "./plant_store.ts";
import type { TokenStore } from "../auth/token_store.ts";

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
   * Resolves with the cause once nothing may be acknowledged any more (fail-stop): every call rejects from then on, and
   * only a new process can find out what is stored. Pending while the database works; never rejects.
   */
  readonly failed: Promise<Error>;
}

/** One metric of a database, in the terms of Prometheus. */
export interface DatabaseMetric {
  /** With its unit, and `_total` where it is a counter. */
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
