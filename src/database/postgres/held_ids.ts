/** An id that another transaction holds. Times are those of `performance.now()`. */
export interface HeldId {
  /** When its plant last met the lock. */
  readonly metAt: number;
  /** From when on its plant is tried again. */
  readonly retryAt: number;
}

/**
 * The step for a plant:
 *
 * - `insert`: insert it with its batch;
 * - `retry`: insert it after the batch, which a lock that has not ended would hold up;
 * - `refuse`: do not try, because it met the lock a moment ago.
 */
export type HeldStep = "insert" | "retry" | "refuse";

/**
 * Decides what to do with a plant.
 *
 * @param held What is remembered of its id; `undefined` if nothing holds it.
 * @param releasedAt When an id was last found to be free. One transaction often holds many ids, and
 *   frees them all when it ends: so those that met a lock before then are tried again.
 */
export function heldStep(held: HeldId | undefined, now: number, releasedAt: number): HeldStep {
  if (held === undefined) return "insert";
  return now >= held.retryAt || held.metAt < releasedAt ? "retry" : "refuse";
}

/** The shortest time for which an id is refused, in milliseconds: clients come back after it. */
const REFUSED_MS = 1_000;
/**
 * Each retry that meets the lock again holds up its batch, and is an error in PostgreSQL's log. If
 * each of N ids is refused for N × 100 ms, there are ten such retries a second.
 */
const REFUSED_MS_PER_ID = 100;
/** The longest time, in milliseconds: a plant should not wait much longer than its lock lasts. */
const LONGEST_REFUSED_MS = 3_000;

/** How long an id is refused after it met a lock, in milliseconds, if so many ids are held. */
export function refusedMs(count: number): number {
  return Math.min(Math.max(REFUSED_MS, count * REFUSED_MS_PER_ID), LONGEST_REFUSED_MS);
}

/** How many ids are remembered: as many plants as a full queue has by default. */
const MAX_HELD = 10_000;
/** How long an id is remembered if its plant is not sent again, in milliseconds. */
const REMEMBERED_MS = 30_000;

/** Remembers the ids that other transactions hold, so that batches do not wait for them again. */
export class HeldIds {
  /** Oldest `metAt` first. */
  readonly #held = new Map<bigint, HeldId>();
  #releasedAt = Number.NEGATIVE_INFINITY;

  /** Decides the step for a plant of this id. */
  stepFor(id: bigint, now: number): HeldStep {
    return heldStep(this.#held.get(id), now, this.#releasedAt);
  }

  /** Remembers an id that met a lock. */
  met(id: bigint): void {
    const metAt = performance.now();
    this.#held.delete(id);
    this.#forgetOldest(metAt - REMEMBERED_MS);
    this.#held.set(id, { metAt, retryAt: metAt + refusedMs(this.#held.size + 1) });
  }

  /** Forgets an id that met no lock, or one that has ended. */
  released(id: bigint): void {
    const now = performance.now();
    const wasHeld = this.#held.delete(id);
    // Once a second at most: the ids that other transactions hold are tried again too, and each of
    // them meets its lock.
    if (wasHeld && now - this.#releasedAt >= REFUSED_MS) this.#releasedAt = now;
  }

  /** Forgets the ids whose lock was met before a time, and the oldest one if the table is full. */
  #forgetOldest(before: number): void {
    for (const [id, { metAt }] of this.#held) {
      if (metAt > before && this.#held.size < MAX_HELD) return;
      this.#held.delete(id);
    }
  }
}
