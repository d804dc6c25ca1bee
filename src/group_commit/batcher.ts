import { Admission } from "./admission.ts";
import {
  type Batch,
  type Commit,
  commitBatch,
  earliestDeadline,
  type PendingAdd,
  rejectInFlight,
  takeBatch,
  withdraw,
} from "./batch.ts";
import { startDeadline, withDeadline } from "../async/deadline.ts";
import { PlantStoreError } from "../errors.ts";
import { LingerTime } from "./linger_time.ts";
import { LockedAdds } from "./locked_adds.ts";
import type { NewPlant } from "../plant/plant.ts";
import type { AddOutcome, PlantStore } from "../database/plant_store.ts";

/** What the next batch waits for. */
type State =
  /** For its first plant: nothing is pending. */
  | { readonly name: "idle" }
  /** For a turn of the event loop that brings no more plants. */
  | { readonly name: "gathering" }
  /** For a lane: each has a batch in flight. */
  | { readonly name: "lanes busy" }
  /** For some time after the batch before it left, while one is in flight. */
  | { readonly name: "spacing" }
  /** For others who are likely to come: until `size` plants are pending, or the timer ends. */
  | { readonly name: "lingering"; size: number };

/** How far apart two batches leave while one is in flight, in milliseconds: a fast commit is back before. */
const SPACING_MS = 3;

/** A batch that still grows gathers for at most this many turns of the event loop. */
const MAX_TURNS = 4;

/** How a {@linkcode Batcher} behaves: the options of `groupCommit`, all of them given. */
export interface BatcherOptions {
  readonly queueLimit: number;
  readonly queueBytes: number;
  readonly timeoutMs: number;
  readonly lanes: number;
  readonly defer: (run: () => void) => void;
  readonly onCommit: (commit: Commit) => void;
}

/** What `groupCommit` returns: it holds the plants that have no outcome, and decides when a batch leaves. */
export class Batcher {
  readonly #store: PlantStore;
  readonly #options: BatcherOptions;
  readonly #admission: Admission;
  #state: State = { name: "idle" };
  /** The next batch, in the order of arrival. */
  readonly #pending: PendingAdd[] = [];
  /** The plants that other transactions hold, apart from those being tried again. */
  readonly #locked = new LockedAdds((batch) => this.#commit(batch));
  /** The batches that the store has, not more than there are lanes; and one of plants that were locked. */
  readonly #inFlight = new Set<Batch>();
  /** When the last batch left, on the clock of `performance.now()`. */
  #flushedAt = Number.NEGATIVE_INFINITY;
  readonly #lingerTime = new LingerTime();
  /** Ends "spacing" or "lingering". */
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Deadlines up to this time are over, on the same clock. */
  #expiredAt = Number.NEGATIVE_INFINITY;
  /** Clears what runs at the earliest deadline. */
  #expiry: (() => void) | undefined;
  /** From the first `drain` on. */
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(store: PlantStore, options: BatcherOptions) {
    this.#store = store;
    this.#options = options;
    this.#admission = new Admission(options);
  }

  add(plant: NewPlant): Promise<AddOutcome> {
    if (this.#drained !== undefined) return Promise.reject(new PlantStoreError("shutting_down"));
    if (!this.#admission.admit(plant)) return Promise.reject(new PlantStoreError("queue_full"));
    return new Promise((resolve, reject) => {
      const { timeoutMs } = this.#options;
      this.#pending.push({ plant, resolve, reject, deadline: performance.now() + timeoutMs });
      if (this.#state.name === "idle") this.#schedule();
      else if (this.#state.name === "lingering" && this.#pending.length === this.#state.size) void this.#flush();
      if (this.#expiry === undefined) this.#scheduleExpiry(timeoutMs);
    });
  }

  size(): number {
    return this.#admission.size;
  }

  async drain(timeoutMs: number): Promise<void> {
    this.#drained ??= Promise.withResolvers();
    const { promise, resolve } = this.#drained;
    if (this.size() === 0) resolve();
    // Nobody can come any more.
    if (this.#state.name === "lingering") void this.#flush();
    await withDeadline(promise, timeoutMs, () => this.#expire(Number.POSITIVE_INFINITY));
    resolve();
    this.#expiry?.();
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

  #wait(state: State, delayMs: number): void {
    this.#state = state;
    this.#timer = setTimeout(() => this.#flush(), delayMs);
  }

  async #flush(): Promise<void> {
    clearTimeout(this.#timer);
    if (this.#state.name === "lingering") this.#lingerTime.record(this.#pending.length >= this.#state.size);
    const batch = takeBatch(this.#pending);
    this.#state = { name: "idle" };
    // Nobody came while it lingered, or all of it expired.
    if (batch.length === 0) return this.#returned(0);
    this.#flushedAt = performance.now();
    const committed = this.#commit(batch);
    if (this.#pending.length > 0) this.#schedule();
    await committed;
  }

  async #commit(batch: Batch): Promise<void> {
    this.#inFlight.add(batch);
    const locked = await commitBatch(batch, this.#store, this.#options.onCommit);
    this.#inFlight.delete(batch);
    if (locked.length === 0) this.#admission.release(batch);
    else this.#keep(batch, locked);
    this.#returned(batch.length - locked.length);
  }

  /** Those of a batch that are locked have no outcome yet, unless their time is over. */
  #keep(batch: Batch, locked: Batch): void {
    const kept = new Set(locked);
    this.#admission.release(batch.filter((add) => !kept.has(add)));
    this.#locked.push(locked);
    this.#admission.release(this.#locked.withdraw(Math.max(this.#expiredAt, performance.now())));
  }

  /** @param settled How many plants have their outcome: their clients may send again. */
  #returned(settled: number): void {
    if (this.size() === 0) this.#becomeEmpty();
    if (this.#state.name === "gathering") return;
    if (this.#state.name === "lingering") return void (this.#state.size += settled);
    clearTimeout(this.#timer);
    const isFull = this.#inFlight.size >= this.#options.lanes;
    if (settled < 2 || isFull || this.#drained !== undefined) this.#schedule();
    else this.#wait({ name: "lingering", size: settled + this.#pending.length }, this.#lingerTime.ms);
  }

  /** A timer without a plant would only keep the process alive. */
  #becomeEmpty(): void {
    this.#drained?.resolve();
    this.#expiry?.();
    this.#expiry = undefined;
  }

  /** Decides what the next batch waits for. */
  #schedule(): void {
    const sinceLast = performance.now() - this.#flushedAt;
    if (this.#pending.length === 0) this.#state = { name: "idle" };
    else if (this.#inFlight.size >= this.#options.lanes) this.#state = { name: "lanes busy" };
    else if (this.#inFlight.size > 0 && sinceLast < SPACING_MS) this.#wait({ name: "spacing" }, SPACING_MS - sinceLast);
    else this.#gather();
  }

  /** One timer for all. */
  #scheduleExpiry(delayMs: number): void {
    this.#expiry = startDeadline(delayMs, () => {
      const now = performance.now();
      this.#expire(now);
      this.#expiry = undefined;
      if (this.size() === 0) this.#becomeEmpty();
      const next = earliestDeadline([...this.#inFlight, this.#pending, this.#locked.waiting], now);
      if (next !== undefined) this.#scheduleExpiry(next - now);
    });
  }

  #expire(now: number): void {
    for (const batch of this.#inFlight) rejectInFlight(batch, now);
    this.#admission.release(withdraw(this.#pending, now));
    this.#admission.release(this.#locked.withdraw(now));
    this.#expiredAt = now;
  }
}
