import { MAX_TIMER_MS, onNextTurn, startDeadline, withDeadline } from "../async/timers.ts";
import { attempt, PlantStoreError, requireNoMore, requireNumber } from "../errors.ts";
import { type NewPlant, sizeOf } from "../plant/plant.ts";
import { expectedAfter, lingerMsAfter, nextStep } from "./next_step.ts";
import type { AddOutcome, PlantStore, StoreOutcome } from "./plant_store.ts";

/** Options of {@linkcode groupCommit}. */
export interface GroupCommitOptions {
  /** How many plants may be pending or in flight at once. @default {10_000} */
  readonly queueLimit?: number | undefined;
  /**
   * The maximum size of the texts of those plants, in bytes of memory: two for each UTF-16 code unit.
   * A single plant may exceed it. @default {67_108_864}
   */
  readonly queueBytes?: number | undefined;
  /** How long one `add` may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number | undefined;
  /**
   * How many batches may be in flight at once, if the store has several connections.
   *
   * @default {1}
   */
  readonly maxInFlight?: number | undefined;
  /**
   * Called after every successful commit. Errors that it throws are printed with `console.error`.
   *
   * @default does nothing
   */
  readonly onCommit?: ((commit: Commit) => void) | undefined;
}

/** A committed transaction. */
export interface Commit {
  /** The outcomes in the order of the batch, without plants that were `unavailable`. */
  readonly outcomes: readonly AddOutcome[];
  readonly durationMs: number;
}

/** Takes one plant at a time, and commits many in one transaction. */
export interface GroupCommit {
  /**
   * Stores a plant together with the others that are pending, and resolves once it is durable.
   *
   * @throws {PlantStoreError} `queue_full`, `shutting_down`, or `storage_unavailable`, which
   *   includes a timeout.
   */
  add(plant: NewPlant): Promise<AddOutcome>;

  /**
   * How many plants are pending or in flight. A plant in flight counts until its commit ends, even
   * past its deadline.
   */
  size(): number;

  /**
   * How full the queue is: the share of `queueLimit` or of `queueBytes` in use, whichever is
   * larger. At 1, plants are refused.
   */
  fill(): number;

  /**
   * Accepts no further plants, and resolves once every accepted plant has its outcome. A plant
   * without one after `timeoutMs` milliseconds is rejected with `storage_unavailable`. `Infinity`
   * waits for all of them.
   *
   * @throws {TypeError} If `timeoutMs` is not a number: then nothing changes.
   */
  drain(timeoutMs: number): Promise<void>;
}

/**
 * Commits concurrent adds to a store in batches (group commit). While one batch is in flight, the
 * next one fills: under load, batches grow and fsyncs become rarer. A single plant waits for others
 * only right after a batch of several, whose clients often send again, and for at most three
 * milliseconds. Disposing of the queue drains it for at most `timeoutMs`.
 *
 * @throws {TypeError} If the store has no `add`, an option is unknown, or a limit is not a positive
 *   number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { groupCommit, memoryStore } from "plant-store";
 *
 * const plants = groupCommit(memoryStore());
 *
 * assert.equal(await plants.add({ id: 1n, name: "Fern" }), "added");
 * await plants.drain(1_000);
 * await assert.rejects(plants.add({ id: 2n, name: "Moss" }), { code: "shutting_down" });
 * ```
 */
export function groupCommit(
  store: PlantStore,
  options: GroupCommitOptions = {},
): GroupCommit & AsyncDisposable {
  const {
    queueLimit = 10_000,
    queueBytes = 2 ** 26,
    timeoutMs = 5_000,
    maxInFlight = 1,
    onCommit = () => {},
    ...rest
  } = options;
  requireNoMore(rest);
  if (typeof store?.add !== "function")
    throw new TypeError(
      "Cannot create the queue: `store.add` must be a function; is the store awaited?",
    );

  for (const [name, value] of Object.entries({ queueLimit, queueBytes, maxInFlight }))
    requireNumber(name, value);
  requireNumber("timeoutMs", timeoutMs, { max: MAX_TIMER_MS });

  return new Batcher(store, { queueLimit, queueBytes, timeoutMs, maxInFlight, onCommit });
}

type GivenOptions = {
  readonly [Option in keyof GroupCommitOptions]-?: NonNullable<GroupCommitOptions[Option]>;
};

/** A plant that has no outcome yet. */
interface PendingAdd {
  readonly plant: NewPlant;
  /** How long its texts are, in UTF-16 code units. */
  readonly units: number;
  /** When its caller gives up, on the clock of `performance.now()`. */
  readonly deadline: number;
  readonly resolve: (outcome: AddOutcome) => void;
  readonly reject: (error: unknown) => void;
}

/** Plants for one transaction, in the order of arrival, which is that of their deadlines. */
type Batch = readonly PendingAdd[];

/**
 * The state of the next batch. Besides a free connection of the store, it waits for:
 *
 * - `idle`: nothing; the next change decides;
 * - `gathering`: a turn of the event loop;
 * - `lingering`: the expected number of plants, or the timer;
 * - `spacing`: the timer, or the end of a batch in flight.
 */
type State =
  | { readonly name: "idle" | "gathering" }
  | { readonly name: "lingering"; readonly expected: number; readonly timer: Timer }
  | { readonly name: "spacing"; readonly timer: Timer };

type Timer = ReturnType<typeof setTimeout>;

const IDLE: State = { name: "idle" };

/** The queue. Carries out the steps that {@linkcode nextStep} chooses. */
class Batcher implements GroupCommit, AsyncDisposable {
  readonly #store: PlantStore;
  readonly #options: GivenOptions;

  // Admission. #admit() adds, #release() subtracts.

  /** How many plants have no outcome, and the UTF-16 code units of their texts. */
  #size = 0;
  #units = 0;

  // The next batch. #become() sets the state; #lingerAfter() changes `expected` in it.

  /**
   * In the order of arrival. add() adds to it, #flush() takes batches, #expire() removes late
   * plants.
   */
  readonly #pending: PendingAdd[] = [];
  #state: State = IDLE;
  /** When the last batch left, on the clock of `performance.now()`. */
  #flushedAt = Number.NEGATIVE_INFINITY;

  /** The batches that the store is committing. #commit() owns it. */
  readonly #inFlight = new Set<Batch>();

  // Deadlines. All plants have the same time, so one timer goes from each deadline to the next.

  /** Clears that timer, which runs while there are plants. #startTimer() sets it. */
  #clearTimer: (() => void) | undefined;
  /** The plants with deadlines up to this one are rejected, on the clock of `performance.now()`. */
  #expiredAt = Number.NEGATIVE_INFINITY;

  /** Set by the first drain(); resolves when no plant is left. */
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(store: PlantStore, options: GivenOptions) {
    this.#store = store;
    this.#options = options;
  }

  add(plant: NewPlant): Promise<AddOutcome> {
    if (this.#drained !== undefined) return Promise.reject(new PlantStoreError("shutting_down"));

    const units = sizeOf(plant);
    if (!this.#admit(units)) return Promise.reject(new PlantStoreError("queue_full"));

    return new Promise((resolve, reject) => {
      const { timeoutMs } = this.#options;
      const now = performance.now();
      this.#pending.push({ plant, units, resolve, reject, deadline: now + timeoutMs });
      if (this.#clearTimer === undefined) this.#startTimer(timeoutMs);
      this.#proceed(now);
    });
  }

  size(): number {
    return this.#size;
  }

  fill(): number {
    const { queueLimit, queueBytes } = this.#options;
    return Math.max(this.#size / queueLimit, bytesOf(this.#units) / queueBytes);
  }

  async drain(timeoutMs: number): Promise<void> {
    const drained = this.#drained ?? Promise.withResolvers();
    const { promise, resolve } = drained;
    // Throws for NaN: then nothing has changed.
    const drain = withDeadline(promise, timeoutMs, () => this.#expire(Number.POSITIVE_INFINITY));
    this.#drained = drained;

    if (this.#size === 0) {
      // Ends a linger: no further plants are accepted.
      this.#become(IDLE);
      resolve();
    } else this.#proceed(performance.now());

    await drain;
    resolve();
    this.#stopTimer();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.drain(this.#options.timeoutMs);
  }

  /** Admission control: returns false if the queue is full. */
  #admit(units: number): boolean {
    const { queueLimit, queueBytes } = this.#options;
    if (this.#size >= queueLimit) return false;
    if (this.#size > 0 && bytesOf(this.#units + units) > queueBytes) return false;

    this.#size++;
    this.#units += units;
    return true;
  }

  /** Makes room in the queue after these plants have their outcome. */
  #release(adds: Batch): void {
    this.#size -= adds.length;
    for (const { units } of adds) this.#units -= units;
    if (this.#size > 0) return;

    this.#drained?.resolve();
    // A running timer would keep the process alive.
    this.#stopTimer();
  }

  /** Takes the next step after a change. */
  #proceed(now: number): void {
    // A gathering batch leaves by itself.
    if (this.#state.name === "gathering") return;

    const step = nextStep({
      pending: this.#pending.length,
      inFlight: this.#inFlight.size,
      maxInFlight: this.#options.maxInFlight,
      sinceFlushMs: now - this.#flushedAt,
      expected: this.#expected(),
      isDraining: this.#drained !== undefined,
    });
    if (step === "gather") this.#gather();
    else if (step === "flush") this.#flush();
    else if (step !== "wait") this.#space(step.flushAfterMs);
  }

  /** How many plants complete a lingering batch; 0 if it does not linger. */
  #expected(): number {
    return this.#state.name === "lingering" ? this.#state.expected : 0;
  }

  /** Flushes after a turn of the event loop, which reads the requests that have arrived. */
  #gather(): void {
    this.#become({ name: "gathering" });
    // A microtask is too early: each batch would have one plant.
    onNextTurn(() => this.#flush());
  }

  /**
   * Lingers for as many plants as a commit suggests. A linger in progress keeps its timer: it is
   * never extended.
   */
  #lingerAfter({ outcomes, durationMs }: Commit): void {
    const facts = { pending: this.#pending.length, expected: this.#expected() };
    const expected = expectedAfter(outcomes.length, facts);
    if (expected === 0) return;

    if (this.#state.name === "lingering") {
      this.#state = { ...this.#state, expected };
      return;
    }

    const timer = setTimeout(() => this.#flush(), lingerMsAfter(durationMs));
    this.#become({ name: "lingering", expected, timer });
  }

  /**
   * Flushes after a delay, because a batch is in flight. Keeps a running timer: its time has not
   * changed.
   */
  #space(delayMs: number): void {
    if (this.#state.name === "spacing") return;
    this.#become({ name: "spacing", timer: setTimeout(() => this.#flush(), delayMs) });
  }

  #become(state: State): void {
    if ("timer" in this.#state) clearTimeout(this.#state.timer);
    this.#state = state;
  }

  /** Hands the next batch to the store. */
  #flush(): void {
    this.#become(IDLE);

    const batch = takeBatch(this.#pending);
    // No plant arrived during the linger, or all expired.
    if (batch.length === 0) return;

    this.#flushedAt = performance.now();
    void this.#commit(batch);
    this.#proceed(this.#flushedAt);
  }

  async #commit(batch: Batch): Promise<void> {
    this.#inFlight.add(batch);
    const commit = await commitBatch(batch, this.#store, this.#options.onCommit);
    this.#inFlight.delete(batch);
    this.#release(batch);
    if (this.#state.name === "gathering") return;

    // A connection is free: the next batch need not wait.
    if (this.#state.name === "spacing") this.#become(IDLE);
    if (commit !== undefined) this.#lingerAfter(commit);
    this.#proceed(performance.now());
  }

  /** Starts the one timer of all plants, for the earliest deadline. */
  #startTimer(delayMs: number): void {
    this.#clearTimer = startDeadline(delayMs, () => {
      const now = performance.now();
      this.#clearTimer = undefined;
      this.#expire(now);

      const next = this.#nextDeadline();
      if (next !== undefined) this.#startTimer(next - now);
    });
  }

  #stopTimer(): void {
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  /** Rejects the plants with deadlines up to this one. Those in flight may be stored nevertheless. */
  #expire(deadline: number): void {
    for (const batch of this.#inFlight) {
      const isLate = (add: PendingAdd) =>
        this.#expiredAt < add.deadline && add.deadline <= deadline;
      rejectAll(batch.filter(isLate), UNKNOWN);
    }

    this.#expiredAt = deadline;
    const kept = this.#pending.findIndex((add) => add.deadline > deadline);
    const withdrawn = this.#pending.splice(0, kept === -1 ? this.#pending.length : kept);
    rejectAll(withdrawn, NOT_STORED);
    this.#release(withdrawn);
  }

  /** The earliest deadline that has not passed. Batches leave in the order of arrival. */
  #nextDeadline(): number | undefined {
    for (const batch of [...this.#inFlight, this.#pending]) {
      const next = batch.find(({ deadline }) => deadline > this.#expiredAt);
      if (next !== undefined) return next.deadline;
    }
    return undefined;
  }
}

/**
 * Returns the memory that a text of this length takes, in bytes: up to two for each UTF-16 code
 * unit.
 */
function bytesOf(units: number): number {
  return 2 * units;
}

const UNKNOWN = "storage did not finish in time; the plant may or may not be stored, send it again";
const NOT_STORED = "storage did not take the plant in time; it is not stored, send it again";

/**
 * The maximum size of the texts of a batch, in UTF-16 code units; a single plant may exceed it. A
 * queue of long texts is committed in several batches, because one transaction could miss the
 * deadline; a full queue of usual names fits in one.
 */
const BATCH_UNITS = 2 ** 20;

/**
 * Takes the next batch from the pending plants: all of them, unless their texts are too long for
 * one.
 */
function takeBatch(pending: PendingAdd[]): Batch {
  let units = 0;
  const end = pending.findIndex((add) => {
    const before = units;
    units += add.units;
    return before > 0 && units > BATCH_UNITS;
  });
  return pending.splice(0, end === -1 ? pending.length : end);
}

/**
 * Commits a batch: every add gets its own plant's outcome, or all of them get the store's error. If
 * the database refuses the data of a plant, it commits the halves one after the other, down to that
 * plant. An add that has already timed out stays rejected.
 *
 * @returns The last commit; `undefined` if no plant got an outcome.
 */
async function commitBatch(
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
    attempt("onCommit", () => onCommit(commit));
    return commit;
  } catch (error) {
    const isOfOnePlant = error instanceof PlantStoreError && error.code === "internal";
    if (isOfOnePlant && batch.length > 1 && isInTime(batch)) {
      const middle = Math.ceil(batch.length / 2);
      const commit = await commitBatch(batch.slice(0, middle), store, onCommit);
      return (await commitBatch(batch.slice(middle), store, onCommit)) ?? commit;
    }

    for (const { reject } of batch) reject(error);
    return undefined;
  }
}

/** Whether a caller of the batch still waits. */
function isInTime(batch: Batch): boolean {
  return performance.now() < (batch.at(-1)?.deadline ?? 0);
}

const OUTCOMES: ReadonlySet<unknown> = new Set<StoreOutcome>([
  "added",
  "present",
  "conflict",
  "unavailable",
]);

/**
 * Checks the result of a store. One in JavaScript may forget a `return`: then no plant of the batch
 * may be acknowledged.
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

/** Rejects adds that timed out. */
function rejectAll(adds: Batch, message: string): void {
  for (const { reject } of adds) reject(new PlantStoreError("storage_unavailable", message));
}
