import { type Batch, type Commit, commitBatch, type PendingAdd, rejectInFlight, rejectPending } from "./batch.ts";
import { withDeadline } from "./deadline.ts";
import { PlantStoreError } from "./errors.ts";
import type { NewPlant } from "./plant.ts";
import type { AddOutcome, PlantStore } from "./plant_store.ts";

/** Options of {@linkcode groupCommit}. */
export interface GroupCommitOptions {
  /** How many plants may be pending or in flight at once. @default {10_000} */
  readonly queueLimit?: number;
  /** How long one `add` may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number;
  /**
   * Runs a function after the input that is already there was read. A microtask is too early: every batch would hold
   * one plant. @default `setTimeout` of zero; `setImmediate` is better where there is one
   */
  readonly defer?: (run: () => void) => void;
  /** Called after every commit that succeeded. @default does nothing */
  readonly onCommit?: (commit: Commit) => void;
}

/** Takes one plant at a time, and commits many in one transaction. */
export interface GroupCommit {
  /**
   * Stores a plant together with the others that are pending, and resolves once it is durable.
   *
   * @throws {PlantStoreError} `queue_full`, `shutting_down`, or `storage_unavailable` (also when it takes too long).
   */
  add(plant: NewPlant): Promise<AddOutcome>;
  /** How many plants are pending or in flight. One in flight counts until its commit ends, also past its deadline. */
  size(): number;
  /**
   * Takes no more plants, and resolves once every plant taken has its outcome; what has none after `timeoutMs`
   * milliseconds is rejected with `storage_unavailable`.
   */
  drain(timeoutMs: number): Promise<void>;
}

/**
 * Gathers concurrent adds into batches over any store: while one batch is in flight the next gathers, so load makes
 * batches larger and fsyncs rarer. A lone plant does not wait for others.
 */
export function groupCommit(store: PlantStore, options: GroupCommitOptions = {}): GroupCommit {
  return new Batcher(store, options);
}

type Timer = ReturnType<typeof setTimeout>;

/** What the next batch waits for. */
type State =
  /** For its first plant: nothing is pending, nothing is in flight. */
  | { readonly name: "idle" }
  /** For a turn of the event loop that brings no more plants. */
  | { readonly name: "gathering" }
  /** For the batch before it to come back from the store. */
  | { readonly name: "in flight" }
  /** For the clients of the batch before it to send again: until `size` plants are pending, or the timer ends. */
  | { readonly name: "lingering"; readonly size: number; readonly timer: Timer };

/**
 * How long a batch lingers after one of several plants came back, in milliseconds (Kafka's `linger.ms`, PostgreSQL's
 * `commit_delay`). Clients that just got a response often send again in less, and one commit for all of them costs
 * about half of what two do.
 */
const LINGER_MS = 1;

/** A batch that still grows gathers for at most this many turns of the event loop. */
const MAX_TURNS = 4;

class Batcher implements GroupCommit {
  readonly #store: PlantStore;
  readonly #options: Required<GroupCommitOptions>;
  #state: State = { name: "idle" };
  /** The next batch, in the order of arrival. */
  #pending: PendingAdd[] = [];
  /** The batch that the store has: its state is `in flight`, too. */
  #inFlight: Batch = [];
  /** Runs at the earliest deadline, while there is one. */
  #expiry: Timer | undefined;
  /** Set from the first `drain` on. */
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(store: PlantStore, options: GroupCommitOptions) {
    const {
      queueLimit = 10_000,
      timeoutMs = 5_000,
      defer = (run) => setTimeout(run, 0),
      onCommit = () => {},
    } = options;
    this.#store = store;
    this.#options = { queueLimit, timeoutMs, defer, onCommit };
  }

  add(plant: NewPlant): Promise<AddOutcome> {
    if (this.#drained !== undefined) return Promise.reject(new PlantStoreError("shutting_down"));
    if (this.size() >= this.#options.queueLimit) return Promise.reject(new PlantStoreError("queue_full"));
    return new Promise((resolve, reject) => {
      const { timeoutMs } = this.#options;
      this.#pending.push({ plant, resolve, reject, deadline: performance.now() + timeoutMs });
      if (this.#state.name === "idle") this.#gather();
      else if (this.#state.name === "lingering" && this.#pending.length === this.#state.size) void this.#flush();
      if (this.#expiry === undefined) this.#scheduleExpiry(timeoutMs);
    });
  }

  size(): number {
    return this.#pending.length + this.#inFlight.length;
  }

  async drain(timeoutMs: number): Promise<void> {
    this.#drained ??= Promise.withResolvers();
    const { promise, resolve } = this.#drained;
    if (this.#state.name === "idle") resolve();
    await withDeadline(promise, timeoutMs, () => this.#expire(Number.POSITIVE_INFINITY));
    resolve();
    clearTimeout(this.#expiry);
  }

  /** Waits as long as each turn of the event loop brings plants: a lone plant is flushed after one turn. */
  #gather(): void {
    this.#state = { name: "gathering" };
    const { defer } = this.#options;
    let seen = this.#pending.length;
    let turns = 0;
    const turn = () => {
      if (this.#pending.length === seen || ++turns === MAX_TURNS) return void this.#flush();
      seen = this.#pending.length;
      defer(turn);
    };
    defer(turn);
  }

  #linger(size: number): void {
    this.#state = { name: "lingering", size, timer: setTimeout(() => this.#flush(), LINGER_MS) };
  }

  async #flush(): Promise<void> {
    if (this.#state.name === "lingering") clearTimeout(this.#state.timer);
    const batch = this.#pending;
    this.#pending = [];
    this.#inFlight = batch;
    this.#state = { name: "in flight" };
    // All of it may have expired.
    if (batch.length > 0) await commitBatch(batch, this.#store, this.#options.onCommit);
    this.#inFlight = [];
    this.#next(batch.length);
  }

  #next(returned: number): void {
    if (returned > 1 && this.#pending.length > 0) return this.#linger(returned + this.#pending.length);
    if (this.#pending.length > 0) return this.#gather();
    this.#state = { name: "idle" };
    this.#drained?.resolve();
  }

  /** One timer for all: deadlines are in the order of arrival. */
  #scheduleExpiry(delayMs: number): void {
    this.#expiry = setTimeout(() => {
      const now = performance.now();
      this.#expire(now);
      this.#expiry = undefined;
      const next = this.#inFlight.find(({ deadline }) => deadline > now) ?? this.#pending[0];
      if (next !== undefined) this.#scheduleExpiry(next.deadline - now);
    }, delayMs);
  }

  #expire(now: number): void {
    const overdue = ({ deadline }: PendingAdd) => deadline <= now;
    rejectInFlight(this.#inFlight.filter(overdue));
    const kept = this.#pending.findIndex((add) => !overdue(add));
    rejectPending(this.#pending.splice(0, kept === -1 ? this.#pending.length : kept));
  }
}
