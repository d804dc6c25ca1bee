import { PlantStoreError } from "./errors.ts";
import type { NewPlant } from "./plant.ts";
import type { AddOutcome, PlantStore } from "./plant_store.ts";

/** Tuning and surroundings of {@linkcode groupCommit}. */
export interface GroupCommitOptions {
  /** How many plants may be without a response at once. @default {10_000} */
  readonly queueLimit?: number;
  /** From `add` to its response at most, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /**
   * Runs a function after the input that is already there was read. A microtask is too early: every batch would hold
   * one plant. @default `setTimeout` of zero; `setImmediate` is better where there is one
   */
  readonly defer?: (run: () => void) => void;
  /** Told of every commit that succeeded. @default nobody is */
  readonly onCommit?: (commit: Commit) => void;
}

/** One transaction that was committed. */
export interface Commit {
  /** What became of each plant. */
  readonly outcomes: readonly AddOutcome[];
  readonly durationMs: number;
}

/** One plant at a time in, one transaction a batch out. */
export interface GroupCommit {
  /**
   * Stores a plant together with whatever else waits, and resolves once it is durable.
   *
   * @throws {PlantStoreError} `queue_full`, `shutting_down`, or `storage_unavailable` (also when it takes too long).
   */
  add(plant: NewPlant): Promise<AddOutcome>;
  /** How many plants are held: those that wait, and those whose commit has begun, answered late or not. */
  size(): number;
  /**
   * Takes no more plants, and resolves once every plant taken has its response; what has none after `timeoutMs`
   * milliseconds gets `storage_unavailable`.
   */
  drain(timeoutMs: number): Promise<void>;
}

interface PendingAdd {
  readonly plant: NewPlant;
  readonly deadline: number;
  readonly resolve: (outcome: AddOutcome) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * How long a batch waits, after a commit of several, for those whom that one answered, in milliseconds. They are likely
 * to be back in less, and one commit for all of them costs about half of what two do. (PostgreSQL's `commit_delay`.)
 */
const LINGER_MS = 1;

/** A batch that still grows is left to gather for at most this many turns of the event loop. */
const MAX_TURNS = 4;

/**
 * Gathers concurrent adds into batches over any store: while one batch commits the next gathers, so load makes batches
 * larger and fsyncs rarer. A lone plant waits for nobody.
 */
export function groupCommit(store: PlantStore, options: GroupCommitOptions = {}): GroupCommit {
  const { queueLimit = 10_000, timeoutMs = 5_000, defer = (run) => setTimeout(run, 0), onCommit } = options;
  let pending: PendingAdd[] = [];
  let inFlight: PendingAdd[] = [];
  let busy = false;
  let expected = 0;
  let company: ReturnType<typeof setTimeout> | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let drained: PromiseWithResolvers<void> | undefined;

  function add(plant: NewPlant): Promise<AddOutcome> {
    if (drained !== undefined) return Promise.reject(new PlantStoreError("shutting_down"));
    if (size() >= queueLimit) return Promise.reject(new PlantStoreError("queue_full"));
    return new Promise((resolve, reject) => {
      pending.push({ plant, resolve, reject, deadline: performance.now() + timeoutMs });
      if (!busy) gather();
      else if (pending.length === expected) flush();
      if (timer === undefined) watch(timeoutMs);
    });
  }

  /** Waits as long as each turn of the event loop brings plants, then commits: a lone plant goes after one turn. */
  function gather(): void {
    busy = true;
    let seen = pending.length;
    let turns = 0;
    defer(function turn() {
      if (pending.length === seen || ++turns === MAX_TURNS) return void commit();
      seen = pending.length;
      defer(turn);
    });
  }

  async function commit(): Promise<void> {
    inFlight = pending;
    pending = [];
    if (inFlight.length > 0) await settle(store, inFlight, timeoutMs, onCommit);
    const answered = inFlight.length;
    inFlight = [];
    busy = false;
    if (pending.length === 0) drained?.resolve();
    else if (answered > 1) linger(answered + pending.length);
    else gather();
  }

  function linger(count: number): void {
    busy = true;
    expected = count;
    company = setTimeout(flush, LINGER_MS);
  }

  function flush(): void {
    clearTimeout(company);
    expected = 0;
    void commit();
  }

  /** One timer for all: deadlines are in the order of arrival. */
  function watch(delay: number): void {
    timer = setTimeout(() => {
      const now = performance.now();
      expire(now);
      timer = undefined;
      const next = inFlight.find(({ deadline }) => deadline > now) ?? pending[0];
      if (next !== undefined) watch(next.deadline - now);
    }, delay);
  }

  /** A plant whose commit has not begun is withdrawn; what becomes of one whose commit has is anybody's guess. */
  function expire(now: number): void {
    for (const { deadline, reject } of inFlight) if (deadline <= now) reject(outcomeUnknown());
    const kept = pending.findIndex(({ deadline }) => deadline > now);
    for (const { reject } of pending.splice(0, kept === -1 ? pending.length : kept)) reject(notTried());
  }

  async function drain(drainMs: number): Promise<void> {
    drained ??= Promise.withResolvers();
    if (!busy) drained.resolve();
    const limit = setTimeout(() => {
      expire(Number.POSITIVE_INFINITY);
      drained?.resolve();
    }, drainMs);
    await drained.promise;
    clearTimeout(limit);
    clearTimeout(timer);
  }

  function size(): number {
    return pending.length + inFlight.length;
  }

  return { add, size, drain };
}

/** Each waiter gets its own plant's outcome, or all of them the batch's error. Settling one twice changes nothing. */
async function settle(
  store: PlantStore,
  batch: readonly PendingAdd[],
  timeoutMs: number,
  onCommit: GroupCommitOptions["onCommit"],
): Promise<void> {
  const start = performance.now();
  try {
    const outcomes = await store.add(
      batch.map(({ plant }) => plant),
      { timeoutMs },
    );
    if (outcomes.length !== batch.length) throw new Error("The store gave another number of outcomes than plants");
    batch.forEach(({ resolve }, index) => resolve(outcomes[index] as AddOutcome));
    onCommit?.({ outcomes, durationMs: performance.now() - start });
  } catch (error) {
    for (const { reject } of batch) reject(error);
  }
}

function outcomeUnknown(): PlantStoreError {
  return new PlantStoreError(
    "storage_unavailable",
    "storage did not finish in time; the plant may or may not be stored, send it again",
  );
}

function notTried(): PlantStoreError {
  return new PlantStoreError(
    "storage_unavailable",
    "storage did not take the plant in time; it is not stored, send it again",
  );
}
