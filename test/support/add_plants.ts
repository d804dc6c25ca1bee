import type { Client } from "../../src/database/sqlite/bun_driver.ts";
import { drizzleRows } from "../../src/database/sqlite/sqlite_database.ts";
import { addPlant } from "../../src/database/sqlite/store.ts";
import type { AddOutcome } from "../../src/group_commit/plant_store.ts";
import type { NewPlant } from "../../src/plant/plant.ts";

/** Adds batches by a connection alone, without a store around it. */
export function addPlants(client: Client): (batch: readonly NewPlant[]) => readonly AddOutcome[] {
  const statements = drizzleRows(client);
  return client.transaction((batch: readonly NewPlant[]) =>
    batch.map((plant) => addPlant(statements, plant)),
  ).immediate;
}
