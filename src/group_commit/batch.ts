import type { AddOutcome, PlantStore, StoreOutcome } from "../database/database.ts";
import { PlantStoreError } from "../errors.ts";
import type { NewPlant } from "../plant/plant.ts";

/** A plant that has no outcome yet. */
export interface PendingAdd {
  readonly plant: NewPlant;
  /** How long its texts are, in UTF-16 code units. */
  readonly units: number;
  /** When its caller gives up, on the clock of `performance.now()`. */
  readonly deadline: number;
  readonly resolve: (outcome: AddOutcome) => void;
  readonly reject: (error: unknown) => void;
}

/** Plants for one transaction, in the order of their deadlines. */
export type Batch = readonly PendingAdd[];

/**
 * How many UTF-16 code units the texts of a batch may have; a plant alone may have more. A queue of
 * long texts is committed in several batches, because one transaction could miss the deadline; a
 * full queue of usual names is one.
 */
const BATCH_UNITS = 2 ** 20;

/**
 * Takes the next batch from the pending plants: all of them, unless their texts are too long for
 * one.
 */
export function takeBatch(pending: PendingAdd[]): Batch {
  let units = 0;
  const end = pending.findIndex((add) => {
    const before = units;
    units += add.units;
    return before > 0 && units > BATCH_UNITS;
  });
  return pending.splice(0, end === -1 ? pending.length : end);
}

/** One transaction that was committed. */
export interface Commit {
  /** The outcome of each plant that has one, in the order of the batch. */
  readonly outcomes: readonly AddOutcome[];
  readonly durationMs: number;
}

/**
 * Commits a batch: every add gets its own plant's outcome, or all of them get the store's error. An
 * add that was rejected before stays rejected.
 *
 * @returns The commit; `undefined` if it stored and found no plant.
 */
export async function commitBatch(
  batch: Batch,
  store: Pick<PlantStore, "add">,
  onCommit: (commit: Commit) => void,
): Promise<Commit | undefined> {
  const start = performance.now();
  const plants = batch.map(({ plant }) => plant);

  try {
    const outcomes = await store.add(plants, { timeoutMs: timeLeft(batch, start) });
    checkOutcomes(outcomes, batch.length);
    const durationMs = performance.now() - start;
    batch.forEach((add, index) => settle(add, outcomes[index] as StoreOutcome));

    const settled = outcomes.filter((outcome) => outcome !== "unavailable");
    if (settled.length === 0) return undefined;

    const commit = { outcomes: settled, durationMs };
    onCommit(commit);
    return commit;
  } catch (error) {
    for (const { reject } of batch) reject(error);
    return undefined;
  }
}

const OUTCOMES: ReadonlySet<unknown> = new Set<StoreOutcome>([
  "added",
  "present",
  "conflict",
  "unavailable",
]);

/**
 * A user's own store may be JavaScript and forget a `return`: then no plant of the batch may be
 * acknowledged.
 */
function checkOutcomes(outcomes: unknown, length: number): void {
  if (!Array.isArray(outcomes) || outcomes.length !== length) {
    const given = Array.isArray(outcomes) ? `${outcomes.length} outcomes` : String(outcomes);
    throw new TypeError(
      `The store must return an outcome for each of ${length} plants, but returned ${given}`,
    );
  }

  for (const outcome of outcomes) {
    if (!OUTCOMES.has(outcome))
      throw new TypeError(`The store returned an unknown outcome: ${String(outcome)}`);
  }
}

function settle({ resolve, reject }: PendingAdd, outcome: StoreOutcome): void {
  if (outcome === "unavailable") {
    const cause = new Error('the store returned "unavailable" for this plant');
    reject(new PlantStoreError("storage_unavailable", undefined, { cause }));
    return;
  }

  resolve(outcome);
}

/**
 * The share of the time until a deadline that the store gets: the rest is for telling the clients
 * why it failed.
 */
const STORE_SHARE = 0.9;

/**
 * How long the store may take, in whole milliseconds; at least one, because timers can be late. The
 * last deadline of the batch counts.
 */
function timeLeft(batch: Batch, now: number): number {
  const { deadline = now } = batch.at(-1) ?? {};
  return Math.max(1, Math.ceil((deadline - now) * STORE_SHARE));
}

/** Rejects adds that are past their deadline, and says what became of their plants. */
export function rejectAll(adds: Batch, message: string): void {
  for (const { reject } of adds) reject(new PlantStoreError("storage_unavailable", message));
}
