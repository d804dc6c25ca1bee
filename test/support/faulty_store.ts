import { PlantStoreError } from "../../src/errors.ts";
import type { PlantStore } from "../../src/group_commit/plant_store.ts";

/** What a store does to a batch and to a probe, until it is mended. */
export type Fault =
  /** Fails before anything is stored, as on a full disk. */
  | "fails before"
  /** Stores, and then fails, as if the reply of a database were lost. */
  | "fails after the commit"
  /** Never returns; nothing is stored. */
  | "hangs before"
  /** Stores, and never returns. */
  | "hangs after the commit";

/** A store with a {@linkcode Fault} over another store. `mend` ends the fault for later calls. */
export function faultyStore(store: PlantStore, fault: Fault): PlantStore & { mend(): void } {
  let isFaulty = true;

  async function run<Result>(call: () => Promise<Result>): Promise<Result> {
    if (!isFaulty) return await call();
    if (fault.endsWith("after the commit")) await call();
    if (fault.startsWith("hangs")) return await new Promise<Result>(() => {});
    throw new PlantStoreError("storage_unavailable");
  }

  return {
    add: (plants, options) => run(() => store.add(plants, options)),
    probe: () => run(() => store.probe()),
    mend: () => void (isFaulty = false),
  };
}
