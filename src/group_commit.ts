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
import { startDeadline, withDeadline } from "./deadline.ts";
import { PlantStoreError } from "./errors.ts";
import type { NewPlant } from "./plant.ts";
import type { AddOutcome, PlantStore } from "./plant_store.ts";

/** Options of {@linkcode groupCommit}. */
export interface GroupCommitOptions {
  /** How many plants may be pending or in flight at once. @default {10_000} */
  readonly queueLimit?: number | undefined;
  /** How many bytes the texts of those plants may take; a plant alone may take more. @default {67_108_864} */
  readonly queueBytes?: number | undefined;
  /** How long one `add` may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number | undefined;
  /** How many batches the store commits at once, as it does with several connections. @default {1} */
  readonly lanes?: number | undefined;
  /**
   * Runs a function after the input that is already there was read. A microtask is too early: every batch would hold
   * one plant. @default `setImmediate`, which Bun, Deno and Node have; elsewhere `setTimeout` of zero
   */
  readonly defer?: ((run: () => void) => void) | undefined;
  /** Called after every commit that succeeded. @default does nothing */
  readonly onCommit?: ((commit: Commit) => void) | undefined;
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
 * batches larger and fsyncs rarer. A lone plant does not wait for others. Slow commits are in flight on several lanes.
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
export function groupCommit(store: PlantStore, options: GroupCommitOptions = {}): GroupCommit {
  return new Batcher(store, options);
}

/** What the next batch waits for. */
type State =
  /** For its first plant: nothing is pending. */
  | { readonly name: "idle" }
  /** For a turn of the event loop that brings no more plants. */
  | { readonly name: "gathering" }
  /** For a lane: each has a batch in flight. */
  | { readonly name: "in flight" }
  /** For others who are likely to come: until `size` plants are pending, or the timer ends. */
  | { readonly name: "lingering"; readonly size: number };

/**
 * How long a batch lingers after one of several plants came back, in milliseconds (Kafka's `linger.ms`). Clients that
 * just got a response often send again in less, and one commit for all of them costs about half of what two do.
 */
const LINGER_MS = 1;

/** How far apart two batches leave while one is in flight, in milliseconds: a fast commit is back before. */
const SPACING_MS = 3;

/** A batch that still grows gathers for at most this many turns of the event loop. */
const MAX_TURNS = 4;

/** `setImmediate` is no web standard. A timer of zero milliseconds takes one or more, and a lone plant waits for it. */
function nextTurn(run: () => void): void {
  const { setImmediate = setTimeout } = globalThis as { readonly setImmediate?: (run: () => void) => unknown };
  setImmediate(run);
}

type AllOptions = { readonly [Name in keyof GroupCommitOptions]-?: NonNullable<GroupCommitOptions[Name]> };

class Batcher implements GroupCommit {
  readonly #store: PlantStore;
  readonly #options: AllOptions;
  readonly #admission: Admission;
  #state: State = { name: "idle" };
  /** The next batch, in the order of arrival. */
  readonly #pending: PendingAdd[] = [];
  /** The batches that the store has, not more than there are lanes. */
  readonly #inFlight = new Set<Batch>();
  /** When the last batch left, on the clock of `performance.now()`. */
  #flushedAt = Number.NEGATIVE_INFINITY;
  #lingering: ReturnType<typeof setTimeout> | undefined;
  /** Clears what runs at the earliest deadline. */
  #expiry: (() => void) | undefined;
  /** From the first `drain` on. */
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(store: PlantStore, options: GroupCommitOptions) {
    this.#store = store;
    const { queueLimit = 10_000, queueBytes = 2 ** 26, timeoutMs = 5_000, lanes = 1 } = options;
    const { defer = nextTurn, onCommit = () => {} } = options;
    this.#options = { queueLimit, queueBytes, timeoutMs, lanes, defer, onCommit };
    this.#admission = new Admission(this.#options);
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

  #linger(size: number, delayMs: number): void {
    this.#state = { name: "lingering", size };
    this.#lingering = setTimeout(() => this.#flush(), delayMs);
  }

  async #flush(): Promise<void> {
    clearTimeout(this.#lingering);
    const batch = takeBatch(this.#pending);
    this.#state = { name: "idle" };
    // All of it may have expired.
    if (batch.length === 0) return this.#returned(0);
    this.#inFlight.add(batch);
    this.#flushedAt = performance.now();
    if (this.#pending.length > 0) this.#schedule();
    await commitBatch(batch, this.#store, this.#options.onCommit);
    this.#inFlight.delete(batch);
    this.#admission.release(batch);
    this.#returned(batch.length);
  }

  #returned(size: number): void {
    if (this.size() === 0) this.#becomeEmpty();
    if (this.#state.name === "gathering") return;
    clearTimeout(this.#lingering);
    if (size > 1 && this.#pending.length > 0) this.#linger(size + this.#pending.length, LINGER_MS);
    else this.#schedule();
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
    else if (this.#inFlight.size === this.#options.lanes) this.#state = { name: "in flight" };
    else if (this.#inFlight.size > 0 && sinceLast < SPACING_MS) this.#linger(Infinity, SPACING_MS - sinceLast);
    else this.#gather();
  }

  /** One timer for all: deadlines are in the order of arrival. */
  #scheduleExpiry(delayMs: number): void {
    this.#expiry = startDeadline(delayMs, () => {
      const now = performance.now();
      this.#expire(now);
      this.#expiry = undefined;
      const next = earliestDeadline([...this.#inFlight, this.#pending], now);
      if (next !== undefined) this.#scheduleExpiry(next - now);
    });
  }

  #expire(now: number): void {
    for (const batch of this.#inFlight) rejectInFlight(batch, now);
    this.#admission.release(withdraw(this.#pending, now));
  }
}
