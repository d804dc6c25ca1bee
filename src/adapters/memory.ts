import { type NewPlant, type Plant, samePlant } from "../plant.ts";
import type { AddOutcome, PlantStore } from "../plant_store.ts";

/** A store that forgets at the end of the process: for tests, and the smallest example of the port. */
export function memoryStore(): PlantStore {
  const plants = new Map<bigint, Plant>();

  function addOne(plant: NewPlant): AddOutcome {
    const stored = plants.get(plant.id);
    if (stored !== undefined) return samePlant(stored, plant) ? "present" : "conflict";
    plants.set(plant.id, plant);
    return "added";
  }

  return {
    add: async (batch) => batch.map(addOne),
    probe: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
}
