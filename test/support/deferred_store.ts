import type { NewPlant } from "../../src/plant/plant.ts";
import type { PlantStore, StoreOutcome } from "../../src/database/database.ts";

/** A batch whose commit ends when the test says so, and how. */
export interface DeferredBatch {
  readonly plants: readonly NewPlant[];
  /** How long the store may try, in milliseconds. */
  readonly timeoutMs: number;
  readonly end: (outcomes: readonly StoreOutcome[]) => void;
  readonly fail: (error: unknown) => void;
}

/** A store whose commits end when the test says so. */
export function deferredStore() {
  const batches: DeferredBatch[] = [];
  let arrived = Promise.withResolvers<void>();
  const store: PlantStore = {
    add: (plants, { timeoutMs }) =>
      new Promise((end, fail) => {
        batches.push({ plants: [...plants], timeoutMs, end, fail });
        arrived.resolve();
        arrived = Promise.withResolvers();
      }),
    probe: async () => {},
  };
  return {
    store,
    /** Every batch so far, in the order of arrival. */
    batches,
    /** The batch of this number, as soon as the store has it. */
    async batch(number: number): Promise<DeferredBatch> {
      for (;;) {
        const batch = batches[number];
        if (batch !== undefined) return batch;
        await arrived.promise;
      }
    },
  };
}

/** Lets promises settle: more microtasks than any chain of promises here is long. */
export async function promisesSettled(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}
