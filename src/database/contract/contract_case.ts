import assert from "node:assert/strict";

import { withDeadline } from "../../async/timers.ts";
import type { StoreOutcome } from "../../group_commit/plant_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { Database } from "../database.ts";

/** One promise of a port as a test. Pass both members to the `test` of any test runner. */
export interface ContractCase {
  /** The promise, as a sentence. */
  readonly name: string;
  /** Rejects with an `AssertionError` of `node:assert` if the adapter does not keep the promise. */
  readonly run: () => Promise<void>;
}

/** Checks by the name of the promise. Each runs on a newly opened, empty adapter. */
export type Cases<Opened> = Readonly<Record<string, (opened: Opened) => Promise<void>>>;

/** Makes the cases of a port. Each opens its own adapter. */
export function contractCases<Opened>(
  port: "Database" | "PlantStore" | "TokenStore",
  open: () => Promise<Opened & AsyncDisposable>,
  cases: Cases<Opened>,
): ContractCase[] {
  return Object.entries(cases).map(([name, check]) => ({
    name: `${port}.${name}`,
    async run() {
      await using opened = await open();
      await check(opened);
    },
  }));
}

/**
 * Adds a batch, with a long timeout, because a slow machine does not break the contract.
 *
 * @throws {assert.AssertionError} If the store does not settle by then.
 */
export function add({ plants }: Pick<Database, "plants">, batch: readonly NewPlant[]) {
  return addWithin(plants, batch, 60_000);
}

/** How late a timer may fire on a busy machine, in milliseconds. */
const LATE_MS = 2_000;

/** Adds a batch to a store, which must settle by its timeout. */
export function addWithin(
  plants: Database["plants"],
  batch: readonly NewPlant[],
  timeoutMs: number,
): Promise<readonly StoreOutcome[]> {
  return withDeadline(plants.add(batch, { timeoutMs }), timeoutMs + LATE_MS, () =>
    assert.fail(`add() did not settle within its timeoutMs of ${timeoutMs}`),
  );
}
