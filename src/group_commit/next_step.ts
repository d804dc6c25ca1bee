/** The facts that decide when the next batch leaves. */
export interface Facts {
  /** How many plants wait for the next batch. */
  readonly pending: number;
  /** How many batches the store has. */
  readonly inFlight: number;
  /** How many it may have at once. */
  readonly maxInFlight: number;
  /** Milliseconds since the last batch left. */
  readonly sinceFlushMs: number;
  /** If the next batch lingers: how many plants complete it. Otherwise 0. */
  readonly expected: number;
  /** Whether no further plants are accepted. */
  readonly isDraining: boolean;
}

/**
 * What to do with the plants that are pending:
 *
 * - `wait`: nothing, until something changes;
 * - `gather`: flush them as soon as a turn of the event loop brings no more;
 * - `flush`: hand them to the store now;
 * - `flushAfterMs`: flush them after so many milliseconds, unless something changes before.
 */
export type Step = "wait" | "gather" | "flush" | { readonly flushAfterMs: number };

/**
 * The time between two batches while one is in flight, in milliseconds: a fast commit ends before.
 */
const SPACING_MS = 3;

/** Decides the next step after a change. */
export function nextStep(facts: Facts): Step {
  const { pending, inFlight, expected, sinceFlushMs } = facts;
  if (inFlight >= facts.maxInFlight) return "wait";
  if (expected > 0) return pending >= expected || facts.isDraining ? "flush" : "wait";
  if (pending === 0) return "wait";
  if (inFlight > 0 && sinceFlushMs < SPACING_MS) return { flushAfterMs: SPACING_MS - sinceFlushMs };
  return "gather";
}

/**
 * How many plants complete the next batch after a commit, or 0 if the batch does not linger for
 * them. Clients that just got a response often send again at once, and one commit for all of them
 * costs about half as much as two.
 *
 * @param settled How many plants the commit had.
 */
export function expectedAfter(
  settled: number,
  { pending, expected }: Pick<Facts, "pending" | "expected">,
): number {
  if (expected > 0) return expected + settled;
  return settled < 2 ? 0 : settled + pending;
}

const MIN_LINGER_MS = 1;
const MAX_LINGER_MS = 3;

/**
 * How many batches in a row have to be complete before the next one lingers a millisecond longer.
 */
const BATCHES_PER_MS = 4;

/**
 * How long a batch lingers (Kafka's `linger.ms`), in whole milliseconds, as timers count. On a busy
 * machine clients need more time: if one batch after the other is complete, the next ones linger
 * longer. Clients that do not wait for each other complete few batches in a row, and get no
 * additional latency.
 *
 * @param completeInARow How many batches in a row were complete before their linger ended.
 */
export function lingerMsAfter(completeInARow: number): number {
  return Math.min(MIN_LINGER_MS + Math.floor(completeInARow / BATCHES_PER_MS), MAX_LINGER_MS);
}
