import type { PlantStore } from "../../plant_store.ts";
import { isLocked } from "./errors.ts";

/** How to wait for another process's lock. */
export interface LockWaitOptions {
  /** Told once, when the first wait begins. */
  readonly onWait: () => void;
  /** Ends the wait. */
  readonly stop: AbortSignal;
}

/**
 * A store that shares its database with a server: its `add` waits for the lock as long as it takes, and not only
 * `timeoutMs`; SQLite waits on this thread, so that is how often the signals are looked at.
 */
export function waitForLock(store: PlantStore, { onWait, stop }: LockWaitOptions): PlantStore {
  let isTold = false;

  const add: PlantStore["add"] = async (plants, options) => {
    for (;;) {
      try {
        return await store.add(plants, options);
      } catch (error) {
        if (!isLocked(error) || stop.aborted) throw error;
      }
      if (!isTold) onWait();
      isTold = true;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };

  return { ...store, add };
}
