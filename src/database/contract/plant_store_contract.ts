import assert from "node:assert/strict";

import type { PlantStore } from "../../group_commit/plant_store.ts";
import {
  type FieldKind,
  type FieldValue,
  INT64_MAX,
  INT64_MIN,
  isRequired,
  kindOf,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
  plantOf,
  plantOfRow,
} from "../../plant/plant.ts";
import type { Database } from "../database.ts";
import { add, addWithin, type Cases, type ContractCase, contractCases } from "./contract_case.ts";

/** Opens a new, empty store of plants. */
export type OpenPlantStore = () => Promise<{ readonly plants: PlantStore } & AsyncDisposable>;

/** Opens a store of plants again, as another process would, and lets a test read what is stored. */
export type ReopenPlantStore = () => Promise<
  {
    readonly plants: PlantStore;
    /**
     * Reads a committed plant, on a connection that does not wait for open transactions. Resolves to
     * its row or its fields, or to `undefined` if it does not exist. An absent field may be `null`.
     */
    readonly read: (id: bigint) => Promise<object | undefined>;
  } & AsyncDisposable
>;

/**
 * Returns the contract of a `PlantStore` as tests. The package's guide, "Test your store", lists what they
 * cannot detect.
 *
 * @param open Opens a new, empty store as `plants`. Each test disposes of its own.
 * @param reopen Opens the store of the last `open` again, while it is open, as another process would. Only
 *   this detects a missing or late commit. Omit it for a store that keeps nothing.
 *
 * @example
 * ```ts
 * import { test } from "node:test";
 * import { memoryStore } from "plant-store";
 * import { plantStoreContract } from "plant-store/testing";
 *
 * const open = async () => ({ plants: memoryStore(), async [Symbol.asyncDispose]() {} });
 *
 * for (const { name, run } of plantStoreContract(open)) test(name, run);
 * ```
 */
export function plantStoreContract(
  open: OpenPlantStore,
  reopen?: ReopenPlantStore,
): ContractCase[] {
  return contractCases("PlantStore", open, {
    ...CASES,
    ...casesOfFields(),
    ...(reopen && casesOfTwo(reopen)),
  });
}

const ASCII = ["", " ", "a", "a ", "E", "e", "?", "\\", "\u0001"];
const QUOTES = ["'", "''", '"', '""', "\\'", "a'b", "a''b"];
const LINES = ["\n", "\r", "\r\n", "\n\n"];
const WORDS = ["null", "NULL", "undefined", "\\N", "0", "00", "true"];
const UNICODE = ["é", "e\u0301", "\uFF45", "\uFEFF", "\u200B", "\uFFFD", "\u{10FFFF}", "🌱", "🌿"];

/** Longer than any text in a body of 64 KiB. Late in the list, so that a plant's other fields stay short. */
const LONG = ["", "b", "c"].map((end) => "a".repeat(65_535) + end);

/**
 * Distinct values of each kind, which are easily altered in transit, or equal in an inexact comparison.
 */
export const FIELD_EXAMPLES: Readonly<Record<FieldKind, readonly FieldValue[]>> = {
  text: [...ASCII, ...QUOTES, ...LINES, ...WORDS, ...LONG, ...UNICODE],
};

/** A plant with only the required fields, and a plant with every field. */
const FERN = plantOf(1n, (field) => (isRequired(field) ? exampleOf(field, 2) : undefined));
const MOSS = plantOf(2n, (field) => exampleOf(field, 4));

/** The first plant with another value of a field, for each field. */
const VARIANTS = PLANT_FIELDS.map((field) => changed(FERN, field, otherValues(FERN, field)[0]));
const IVY = VARIANTS[0] as NewPlant;

const CASES: Cases<Pick<Database, "plants">> = {
  async "add() gives each plant's own outcome, in order"(store) {
    assert.deepEqual(await add(store, [FERN]), ["added"]);
    const batch = [MOSS, FERN, IVY, { ...IVY, id: 3n }];
    assert.deepEqual(await add(store, batch), ["added", "present", "conflict", "added"]);
  },

  async "add() of the identical plant changes nothing, however often"(store) {
    assert.deepEqual(await add(store, [MOSS]), ["added"]);
    assert.deepEqual(await add(store, [MOSS, MOSS]), ["present", "present"]);
  },

  async "add() leaves the stored plant as it was when another one conflicts with it"(store) {
    await add(store, [MOSS]);
    for (const field of PLANT_FIELDS) {
      // The first value is absent if the field is optional.
      for (const value of otherValues(MOSS, field).slice(0, 2))
        assert.deepEqual(await add(store, [changed(MOSS, field, value)]), ["conflict"]);
    }
    assert.deepEqual(await add(store, [MOSS]), ["present"]);
  },

  async "add() lets the first of the same id in a batch count"(store) {
    assert.deepEqual(await add(store, [FERN, IVY, FERN]), ["added", "conflict", "present"]);
    assert.deepEqual(await add(store, [IVY]), ["conflict"]);
  },

  async "add() keeps every int64 exactly"(store) {
    const ids = [
      INT64_MIN,
      INT64_MIN + 1n,
      -1n,
      0n,
      2n ** 53n,
      2n ** 53n + 1n,
      INT64_MAX - 1n,
      INT64_MAX,
    ];
    const all = ids.map((id) => ({ ...FERN, id }));

    assert.deepEqual(await add(store, all), filled(all, "added"));
    assert.deepEqual(await add(store, all), filled(all, "present"));
  },

  async "add() leaves the batch as it is"(store) {
    for (const field of PLANT_FIELDS) {
      const others = otherValues(MOSS, field).map((value) => changed(MOSS, field, value));
      const batch = [MOSS, ...others, FERN].map((plant) => ({ ...plant }));
      const before = batch.map((plant) => ({ ...plant }));
      await add(store, batch);
      assert.deepEqual(batch, before);
    }
  },

  async "add() of nothing is nothing"(store) {
    assert.deepEqual(await add(store, []), []);
  },

  async "add() takes 10,000 plants at once, as many as a full queue has"(store) {
    const all = Array.from({ length: 10_000 }, (_, index) => ({
      ...(index % 3 === 0 ? MOSS : FERN),
      id: BigInt(index),
    }));
    assert.deepEqual(await add(store, all), filled(all, "added"));
    assert.deepEqual(await add(store, all), filled(all, "present"));
  },

  async "add() lets one of many different plants have an id, when they are added at the same time"(
    store,
  ) {
    const rivals = Array.from({ length: 8 }, () => [FERN, ...VARIANTS]).flat();
    const outcomes = (await Promise.all(rivals.map((rival) => add(store, [rival])))).flat();
    const stored = rivals[outcomes.indexOf("added")];
    const again = rivals.map((rival) => (rival === stored ? "present" : "conflict"));

    assert.deepEqual(outcomes.with(outcomes.indexOf("added"), "present"), again);
    assert.deepEqual(await add(store, rivals), again);
  },

  async "add() stores one of many identical plants that are added at the same time"(store) {
    const twins = Array.from({ length: 20 }, () => MOSS);
    const outcomes = await Promise.all(twins.map((twin) => add(store, [twin])));
    assert.deepEqual(outcomes.flat().toSorted(), ["added", ...filled(twins.slice(1), "present")]);
  },

  async "add() takes a batch with a megabyte of text, in characters of three bytes"(store) {
    const text = PLANT_FIELDS.find((field) => kindOf(field) === "text");
    const large = plantOf(0n, (field) => (field === text ? "\u6728".repeat(20_000) : FERN[field]));
    const all = Array.from({ length: 52 }, (_, index) => ({ ...large, id: BigInt(index) }));
    assert.deepEqual(await add(store, all), filled(all, "added"));
    assert.deepEqual(await add(store, all), filled(all, "present"));
  },

  async "add() of batches in opposite orders at the same time stores each plant once"(store) {
    await assertNoDeadlock(store, store);
  },

  async "add() settles by its timeoutMs"(store) {
    for (const [id, timeoutMs] of [500, 50, 1].entries()) {
      // A rejection is also in time.
      await addWithin(store.plants, [{ ...FERN, id: BigInt(id) }], timeoutMs).catch(
        rethrowAssertion,
      );
    }
  },

  async "probe() resolves while plants can be stored, and stores none"(store) {
    await store.plants.probe();
    // The ids that a probe might take.
    const small = Array.from({ length: 200 }, (_, index) => BigInt(index - 99));
    const all = [INT64_MIN, ...small, INT64_MAX].map((id) => ({ ...FERN, id }));
    assert.deepEqual(await add(store, all), filled(all, "added"));
  },
};

/** Returns a case for each field: a store that drops or ignores the field confuses different plants. */
function casesOfFields(): Cases<Pick<Database, "plants">> {
  return Object.fromEntries(
    PLANT_FIELDS.map((field) => [
      `add() keeps every ${field} exactly`,
      (store) => assertDistinct(store, field),
    ]),
  );
}

/** Returns the cases that need a database that is opened twice. */
function casesOfTwo(reopen: ReopenPlantStore): Cases<Pick<Database, "plants">> {
  return {
    async "add() has committed when it resolves: the same store, opened beside it, reads the plants"(
      store,
    ) {
      await using beside = await reopen();

      // Read each plant at once, before a late commit. A commit that is sent but not awaited may still arrive
      // first, but not every time.
      for (let id = 0n; id < ROUNDS; id++) {
        const plant = { ...MOSS, id };
        assert.equal(await beside.read(id), undefined, "It is read before it is added");
        assert.deepEqual(await add(store, [plant]), ["added"]);
        assertCommitted(await beside.read(id), id);
      }
    },

    async "add() tells nobody that a plant is present before it is committed"(store) {
      await using beside = await reopen();
      await beside.read(0n);

      for (let id = 0n; id < ROUNDS; id++) {
        const plant = { ...MOSS, id };
        const adds = [store, store, beside, store].map(async (one) => {
          const outcomes = await add(one, [plant]);
          assertCommitted(await beside.read(id), id);
          return outcomes;
        });
        const outcomes = (await Promise.all(adds)).flat();
        assert.deepEqual(outcomes.toSorted(), ["added", "present", "present", "present"]);
      }
    },

    async "add() keeps plants that were added before the store is opened again"(store) {
      await add(store, [FERN, MOSS]);
      await using later = await reopen();

      for (const plant of [FERN, MOSS]) {
        const read: Partial<Plant> = assertCommitted(await later.read(plant.id), plant.id);
        assert.deepEqual(plantOfRow(plant.id, read), plant);
      }

      const again = [FERN, { ...IVY, id: MOSS.id }];
      assert.deepEqual(await add(later, again), ["present", "conflict"]);
      assert.deepEqual(await add(store, again), ["present", "conflict"]);
    },

    async "add() compares with what the same store has added that is opened beside it"(store) {
      await using beside = await reopen();
      for (let id = 0n; id < 20n; id++) {
        const rivals = [add(store, [{ ...FERN, id }]), add(beside, [{ ...IVY, id }])];
        const outcomes = (await Promise.all(rivals)).flat();
        assert.deepEqual(outcomes.toSorted(), ["added", "conflict"]);
      }
    },

    async "add() of batches in opposite orders, through two stores, stores each plant once"(store) {
      await using beside = await reopen();
      await assertNoDeadlock(store, beside);
    },
  };
}

/** How often a case is repeated, because a fault may not show every time. */
const ROUNDS = 30n;

/** Adds batches of the same plants in opposite orders. A store that locks rows in that order deadlocks. */
async function assertNoDeadlock(
  one: Pick<Database, "plants">,
  other: Pick<Database, "plants">,
): Promise<void> {
  // Small batches for a store that needs a round trip for each row, large ones for a fast store.
  const sizes = Array.from({ length: 10 }, (_, round) => (round % 2 === 0 ? 80 : 800));
  for (const [round, length] of sizes.entries()) {
    const batch = Array.from({ length }, (_, index) => ({
      ...FERN,
      id: BigInt(round * 1_000 + index),
    }));
    const batches = [add(one, batch), add(other, batch.toReversed()), add(one, batch)];
    // Wait for all, so that none continues after its case.
    const settled = await Promise.allSettled(batches);
    const [first = [], second = [], third = []] = settled.map((result) => {
      if (result.status === "rejected") throw result.reason;
      return result.value;
    });

    second.toReversed().forEach((outcome, index) => {
      const outcomes = [first[index], outcome, third[index]].toSorted();
      assert.deepEqual(outcomes, ["added", "present", "present"]);
    });
  }
}

function assertCommitted(read: object | undefined, id: bigint): object {
  assert.ok(read, `Plant ${id} was acknowledged, and is not read: its commit is missing or late`);
  return read;
}

function rethrowAssertion(error: unknown): void {
  if (error instanceof assert.AssertionError) throw error;
}

function exampleOf(field: keyof Plant, index: number): FieldValue | undefined {
  const examples = FIELD_EXAMPLES[kindOf(field)];
  return examples[(index + PLANT_FIELDS.indexOf(field)) % examples.length];
}

/** Returns the values to try for a field: the examples of its kind, and `undefined` if it is optional. */
function valuesOf(field: keyof Plant): readonly (FieldValue | undefined)[] {
  const examples = FIELD_EXAMPLES[kindOf(field)];
  return isRequired(field) ? examples : [undefined, ...examples];
}

function otherValues(plant: Plant, field: keyof Plant): (FieldValue | undefined)[] {
  return valuesOf(field).filter((value) => value !== plant[field]);
}

function changed(plant: NewPlant, field: keyof Plant, value: FieldValue | undefined): NewPlant {
  return plantOf(plant.id, (each) => (each === field ? value : plant[each]));
}

/** Stores each value under its own id, and then adds every other value under that id. */
async function assertDistinct(store: Pick<Database, "plants">, field: keyof Plant): Promise<void> {
  const values = valuesOf(field);
  const plantWith = (id: bigint, value: FieldValue | undefined) =>
    changed({ ...FERN, id }, field, value);
  const all = values.map((value, id) => plantWith(BigInt(id), value));
  assert.deepEqual(await add(store, all), filled(all, "added"));
  assert.deepEqual(await add(store, all), filled(all, "present"));

  for (const [id, stored] of values.entries()) {
    const others = values.filter((value) => value !== stored);
    const outcomes = await add(
      store,
      others.map((value) => plantWith(BigInt(id), value)),
    );
    const taken = others.filter((_, index) => outcomes[index] !== "conflict");
    assert.deepEqual(taken.map(shown), [], `The store takes other values for ${shown(stored)}`);
  }
}

/** Formats a value for a message, in escaped ASCII, and shortens it in the middle if it is long. */
function shown(value: FieldValue | undefined): string {
  if (value === undefined) return "an absent one";
  const text = String(value);
  const short = text.length > 20 ? `${text.slice(0, 3)}…${text.slice(-3)}` : text;
  return JSON.stringify(short).replace(
    /[^ -~…]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function filled<Outcome>(plants: readonly NewPlant[], outcome: Outcome): Outcome[] {
  return plants.map(() => outcome);
}
