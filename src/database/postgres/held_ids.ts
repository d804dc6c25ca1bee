/** An id that met another transaction's lock, by `performance.now()`. */
export interface HeldId {
  readonly metAt: number;
  /** From when on it is tried again. */
  readonly retryAt: number;
}

/**
 * The step for a plant:
 *
 * - `insert`: insert it with its batch;
 * - `retry`: insert it apart from the batch, because its lock may not have ended;
 * - `refuse`: nothing, because it met the lock a moment ago.
 */
export type HeldStep = "insert" | "retry" | "refuse";

/**
 * Decides what to do with a plant.
 *
 * @param held What is remembered of its id.
 * @param releasedAt When a lock was last found to have ended: a transaction often holds many ids,
 *   and ends for all at once.
 */
export function heldStep(held: HeldId | undefined, now: number, releasedAt: number): HeldStep {
  if (held === undefined) return "insert";
  return now >= held.retryAt || held.metAt < releasedAt ? "retry" : "refuse";
}

/** As long as `Retry-After` says. */
const REFUSED_MS = 1_000;
/**
 * A retry that fails holds up its batch, and is an error in PostgreSQL's log: about ten a second
 * are enough.
 */
const REFUSED_MS_PER_ID = 100;
const LONGEST_REFUSED_MS = 3_000;

/** How long an id that meets a lock is refused, in milliseconds, if so many are held. */
export function refusedMs(count: number): number {
  return Math.min(Math.max(REFUSED_MS, count * REFUSED_MS_PER_ID), LONGEST_REFUSED_MS);
}

/** How many ids are remembered: as many as a full queue has by default. */
const MAX_HELD = 10_000;
/** How long an id is remembered that is not sent again, in milliseconds. */
const REMEMBERED_MS = 30_000;

/**
 * Remembers the ids that other transactions hold, so that a batch waits for each of them only once.
 */
export class HeldIds {
  /** In the order of `metAt`. */
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
    // Once a second at most: each time, the ids of other transactions are retried as well, and meet
    // their locks again.
    if (wasHeld && now - this.#releasedAt >= REFUSED_MS) this.#releasedAt = now;
  }

  /** Makes room for another one. */
  #forgetOldest(before: number): void {
    for (const [id, { metAt }] of this.#held) {
      if (metAt > before && this.#held.size < MAX_HELD) return;
      this.#held.delete(id);
    }
  }
}
