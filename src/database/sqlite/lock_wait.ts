import type { PlantStore } from "../plant_store.ts";
import { isLocked } from "./errors.ts";

/** How to wait for another process's lock. */
export interface LockWaitOptions {
  /** Called once, when the first wait begins. */
  readonly onWait: () => void;
  /** Ends the wait. */
  readonly stop: AbortSignal;
}

/** How long one try waits, in milliseconds: SQLite waits on this thread, so a signal is noticed between two of them. */
const TRY_MS = 500;

/**
 * A store that shares its database with a server: its `add` waits for the lock as long as it takes, and not only
 * `timeoutMs`.
 */
export function waitForLock(store: PlantStore, { onWait, stop }: LockWaitOptions): PlantStore {
  let hasReported = false;

  const add: PlantStore["add"] = async (plants) => {
    for (;;) {
      try {
        return await store.add(plants, { timeoutMs: TRY_MS });
      } catch (error) {
        if (!isLocked(error) || stop.aborted) throw error;
      }
      if (!hasReported) onWait();
      hasReported = true;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };

  return { ...store, add };
}
