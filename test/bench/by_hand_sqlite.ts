import type { Outcome } from "./by_hand_http.ts";
import type { HandPlant } from "./by_hand_plant.ts";
import { openPlants, storeInto } from "./peers/sqlite.ts";

/**
 * Opens `plants.db`, as durable as plant-store's, and returns the function that stores a batch in
 * one transaction. SQLite makes its own checkpoints, every 1,000 pages.
 */
export function openByHand(): (batch: readonly HandPlant[]) => Outcome[] {
  const database = openPlants();
  const addOne = storeInto(database);
  return database.transaction((batch: readonly HandPlant[]) => batch.map(addOne)).immediate;
}
