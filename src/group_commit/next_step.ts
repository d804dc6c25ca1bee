/** The facts that decide when the next batch leaves. */
export interface Facts {
  /** How many plants wait for the next batch. */
  readonly pending: number;
  /** How many batches are in flight. */
  readonly inFlight: number;
  /** How many batches may be in flight at once. */
  readonly maxInFlight: number;
  /** Milliseconds since the last batch left. */
  readonly sinceFlushMs: number;
  /** If the next batch lingers: how many plants complete it. Otherwise 0. */
  readonly expected: number;
  /** Whether no further plants are accepted. */
  readonly isDraining: boolean;
}

/**
 * The next step for the pending plants:
 *
 * - `wait`: nothing, until something changes;
 * - `gather`: flush them after a turn of the event loop, together with the plants that arrive in
 *   it;
 * - `flush`: hand them to the store now;
 * - `flushAfterMs`: flush them after so many milliseconds, unless something changes before.
 */
export type Step = "wait" | "gather" | "flush" | { readonly flushAfterMs: number };

/**
 * The time between two batches while one is in flight, in milliseconds: a fast commit ends sooner.
 */
const SPACING_MS = 3;

/** Decides the next step after a change. */
export function nextStep(facts: Facts): Step {
  const { pending, inFlight, expected, sinceFlushMs } = facts;
  if (inFlight >= facts.maxInFlight) return "wait";
  if (expected > 0) return pending >= expected || facts.isDraining ? "flush" : "wait";
  if (pending === 0) return "wait";
  if (inFlight > 0 && sinceFlushMs < SPACING_MS) return { flushAfterMs: SPACING_MS - sinceFlushMs };

  // Even right after a commit: with a store in memory, callers that add plant after plant would
  // otherwise block the event loop.
  return "gather";
}

/**
 * How many plants complete the next batch after a commit, or 0 if the batch does not linger for
 * them. Clients that just got a response often send again at once, and one commit for all of them
 * costs about half as much as two.
 *
 * @param settled How many plants got their outcome. After a failed commit nothing lingers: its
 *   clients were told to wait for a second.
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
 * How long a batch lingers (Kafka's `linger.ms`, PostgreSQL's `commit_delay`), in whole
 * milliseconds, as timers count: a quarter as long as the last commit took. The slower commits are,
 * the more a larger batch saves.
 *
 * @param commitMs How long the last commit took, in milliseconds.
 */
export function lingerMsAfter(commitMs: number): number {
  return Math.min(Math.max(MIN_LINGER_MS, Math.ceil(commitMs / 4)), MAX_LINGER_MS);
}
