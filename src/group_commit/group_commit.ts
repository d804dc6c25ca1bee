import { Batcher } from "./batcher.ts";
import type { Commit } from "./batch.ts";
import type { NewPlant } from "../plant/plant.ts";
import type { AddOutcome, PlantStore } from "../database/plant_store.ts";

/** Options of {@linkcode groupCommit}. */
export interface GroupCommitOptions {
  /** How many plants may be pending or in flight at once. @default {10_000} */
  readonly queueLimit?: number | undefined;
  /** How many bytes the texts of those plants may take; a plant alone may take more. @default {67_108_864} */
  readonly queueBytes?: number | undefined;
  /** How long one `add` may take, in milliseconds. @default {5_000} */
  readonly timeoutMs?: number | undefined;
  /**
   * How many batches the store commits at once, as it does with several connections. Plants that were `locked` are tried
   * again in one more. @default {1}
   */
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
 * batches larger and fsyncs rarer. A lone plant waits for others only right after a batch of several, whose clients
 * often send again, and for three milliseconds at most. Slow commits are in flight on several lanes.
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
  const { queueLimit = 10_000, queueBytes = 2 ** 26, timeoutMs = 5_000, lanes = 1 } = options;
  const { defer = nextTurn, onCommit = () => {} } = options;
  return new Batcher(store, { queueLimit, queueBytes, timeoutMs, lanes, defer, onCommit });
}

/** `setImmediate` is no web standard. A timer of zero milliseconds takes one or more, and a lone plant waits for it. */
function nextTurn(run: () => void): void {
  const { setImmediate = setTimeout } = globalThis as { readonly setImmediate?: (run: () => void) => unknown };
  setImmediate(run);
}
