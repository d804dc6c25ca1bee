/** An id that another transaction has locked. Times are those of `performance.now()`. */
export interface HeldId {
  /** When a plant with this id last waited for the lock. */
  readonly metAt: number;
  /** When to try a plant with this id again. */
  readonly retryAt: number;
}

/**
 * The step for a plant:
 *
 * - `insert`: insert it with its batch;
 * - `retry`: insert it after the batch, so that a lock that is still held does not delay the batch;
 * - `refuse`: do not try, because its id was locked a moment ago.
 */
export type HeldStep = "insert" | "retry" | "refuse";

/**
 * Decides what to do with a plant.
 *
 * @param held The entry of its id; `undefined` if the id is not known to be locked.
 * @param releasedAt When an id was last found to be released. One transaction often locks many ids, and
 *   releases them together, so ids that were locked before then are tried again.
 */
export function heldStep(held: HeldId | undefined, now: number, releasedAt: number): HeldStep {
  if (held === undefined) return "insert";
  return now >= held.retryAt || held.metAt < releasedAt ? "retry" : "refuse";
}

/** The shortest time for which an id is refused, in milliseconds. Clients retry after it. */
const REFUSED_MS = 1_000;
/**
 * The time of refusal per held id, in milliseconds. A retry of an id that is still locked delays its batch,
 * and is an error in PostgreSQL's log. If each of N ids is refused for N × 100 ms, there are ten retries a
 * second.
 */
const REFUSED_MS_PER_ID = 100;
/** The longest such time, in milliseconds: a plant should not wait much longer than its lock is held. */
const LONGEST_REFUSED_MS = 3_000;

/** Returns how long to refuse an id, in milliseconds, if this many ids are held. */
export function refusedMs(count: number): number {
  return Math.min(Math.max(REFUSED_MS, count * REFUSED_MS_PER_ID), LONGEST_REFUSED_MS);
}

/** The maximum number of remembered ids: the default size of the queue. */
const MAX_HELD = 10_000;
/** How long an id is remembered if its plant is not sent again, in milliseconds. */
const REMEMBERED_MS = 30_000;

/** Remembers the ids that other transactions have locked, so that batches do not wait for them again. */
export class HeldIds {
  /** Oldest `metAt` first. */
  readonly #held = new Map<bigint, HeldId>();
  #releasedAt = Number.NEGATIVE_INFINITY;

  /** Decides the step for a plant with this id. */
  stepFor(id: bigint, now: number): HeldStep {
    return heldStep(this.#held.get(id), now, this.#releasedAt);
  }

  /** Remembers a locked id. */
  met(id: bigint): void {
    const metAt = performance.now();
    this.#held.delete(id);
    this.#forgetOldest(metAt - REMEMBERED_MS);
    this.#held.set(id, { metAt, retryAt: metAt + refusedMs(this.#held.size + 1) });
  }

  /** Forgets an id that is not locked. */
  released(id: bigint): void {
    const now = performance.now();
    const wasHeld = this.#held.delete(id);
    // At most once a second: ids that other transactions still lock are retried too, and wait again.
    if (wasHeld && now - this.#releasedAt >= REFUSED_MS) this.#releasedAt = now;
  }

  /** Forgets the ids that were last locked before a time, and the oldest if the table is full. */
  #forgetOldest(before: number): void {
    for (const [id, { metAt }] of this.#held) {
      if (metAt > before && this.#held.size < MAX_HELD) return;
      this.#held.delete(id);
    }
  }
}
