import assert from "node:assert/strict";

import {
  INT64_MAX,
  INT64_MIN,
  isRequired,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
} from "../../plant/plant.ts";
import type { Database, PlantStore } from "../database.ts";
import { add, type Cases, type ContractCase, contractCases } from "./contract_case.ts";

/** Opens a new, empty store of plants. */
export type OpenPlantStore = () => Promise<{ readonly plants: PlantStore } & AsyncDisposable>;

/**
 * The contract of a `PlantStore` as tests.
 *
 * @param open Opens a new, empty store as `plants`. Each test disposes of its own.
 * @param reopen Opens the store of the last `open` again, while it is open, as another process
 *   would. Tests of what only another process sees, such as a missing or late commit, need it. A
 *   store that keeps nothing has none.
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
export function plantStoreContract(open: OpenPlantStore, reopen?: OpenPlantStore): ContractCase[] {
  const fields = Object.fromEntries(PLANT_FIELDS.map(caseOfField));
  return contractCases("PlantStore", open, {
    ...CASES,
    ...fields,
    ...(reopen && casesOfTwo(reopen)),
  });
}

const FERN: NewPlant = { id: 1n, name: "Fern" };
const MOSS: NewPlant = { id: 2n, name: "Moss", tag: "indoor" };

const CASES: Cases<Pick<Database, "plants">> = {
  async "add() gives each plant's own outcome, in order"(store) {
    assert.deepEqual(await add(store, [FERN]), ["added"]);
    const batch = [MOSS, FERN, { ...FERN, name: "Ivy" }, { id: 3n, name: "Ivy" }];
    assert.deepEqual(await add(store, batch), ["added", "present", "conflict", "added"]);
  },

  async "add() of the identical plant changes nothing, however often"(store) {
    assert.deepEqual(await add(store, [MOSS]), ["added"]);
    assert.deepEqual(await add(store, [MOSS, MOSS]), ["present", "present"]);
  },

  async "add() leaves the stored plant as it was when another one conflicts with it"(store) {
    await add(store, [MOSS]);
    assert.deepEqual(await add(store, [{ ...MOSS, name: "Ivy" }]), ["conflict"]);
    assert.deepEqual(await add(store, [{ ...MOSS, tag: "outdoor" }]), ["conflict"]);
    assert.deepEqual(await add(store, [{ id: MOSS.id, name: MOSS.name }]), ["conflict"]);
    assert.deepEqual(await add(store, [MOSS]), ["present"]);
  },

  async "add() lets the first of the same id in a batch count"(store) {
    const ivy = { ...FERN, name: "Ivy" };
    assert.deepEqual(await add(store, [FERN, ivy, FERN]), ["added", "conflict", "present"]);
    assert.deepEqual(await add(store, [ivy]), ["conflict"]);
  },

  async "add() tells an absent tag from an empty one"(store) {
    await add(store, [FERN]);
    assert.deepEqual(await add(store, [{ ...FERN, tag: "" }]), ["conflict"]);
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
    const all = ids.map((id) => ({ id, name: `plant ${id}` }));

    assert.deepEqual(await add(store, all), filled(all, "added"));
    assert.deepEqual(await add(store, all), filled(all, "present"));
  },

  async "add() leaves the batch as it is"(store) {
    const batch = [MOSS, { id: 3n, name: " Ivy " }, FERN, { ...MOSS, name: "Ivy" }].map(
      (plant) => ({ ...plant }),
    );
    const before = batch.map((plant) => ({ ...plant }));
    await add(store, batch);
    assert.deepEqual(batch, before);
  },

  async "add() of nothing is nothing"(store) {
    assert.deepEqual(await add(store, []), []);
  },

  async "add() takes 10,000 plants at once, as many as a full queue has"(store) {
    const all = Array.from({ length: 10_000 }, (_, index) => ({
      id: BigInt(index),
      name: `plant ${index}`,
    }));
    assert.deepEqual(await add(store, all), filled(all, "added"));
    assert.deepEqual(await add(store, all), filled(all, "present"));
  },

  async "add() lets one of many different plants have an id, when they are added at the same time"(
    store,
  ) {
    const rivals = Array.from({ length: 20 }, (_, index) => ({ ...FERN, name: `rival ${index}` }));
    const outcomes = (await Promise.all(rivals.map((rival) => add(store, [rival])))).flat();
    assert.deepEqual(outcomes.toSorted(), ["added", ...filled(rivals.slice(1), "conflict")]);

    // That one is stored.
    const again = outcomes.map((outcome) => (outcome === "added" ? "present" : "conflict"));
    assert.deepEqual(await add(store, rivals), again);
  },

  async "add() stores one of many identical plants that are added at the same time"(store) {
    const twins = Array.from({ length: 20 }, () => MOSS);
    const outcomes = await Promise.all(twins.map((twin) => add(store, [twin])));
    assert.deepEqual(outcomes.flat().toSorted(), ["added", ...filled(twins.slice(1), "present")]);
  },

  async "probe() resolves while plants can be stored, and stores none"(store) {
    await store.plants.probe();
    const all = [0n, 1n, -1n, INT64_MIN, INT64_MAX].map((id) => ({ id, name: "Fern" }));
    assert.deepEqual(await add(store, all), filled(all, "added"));
  },
};

/** A store that drops a field, or does not compare it, takes different plants for each other. */
function caseOfField(
  field: keyof Plant,
): [name: string, check: Cases<Pick<Database, "plants">>[string]] {
  const texts = isRequired(field) ? TEXTS : [undefined, ...TEXTS];
  const plantWith = (id: bigint, text: string | undefined) =>
    text === undefined ? { ...FERN, id } : { ...FERN, id, [field]: text };
  return [`add() keeps every ${field} exactly`, (store) => assertDistinct(store, texts, plantWith)];
}

/** What shows on a database that is opened twice. */
function casesOfTwo(reopen: OpenPlantStore): Cases<Pick<Database, "plants">> {
  return {
    async "add() has committed when it resolves: the same store, opened beside it, has the plants"(
      store,
    ) {
      await using beside = await reopen();

      // At once, so that a late commit has no time.
      assert.deepEqual(await add(store, [FERN, MOSS]), ["added", "added"]);
      assert.deepEqual(await add(beside, [FERN, { ...MOSS, name: "Ivy" }]), [
        "present",
        "conflict",
      ]);
    },

    async "add() compares with what the same store has added that is opened beside it"(store) {
      await using beside = await reopen();
      for (let id = 0n; id < 20n; id++) {
        const rivals = [add(store, [{ id, name: "Fern" }]), add(beside, [{ id, name: "Ivy" }])];
        const outcomes = (await Promise.all(rivals)).flat();
        assert.deepEqual(outcomes.toSorted(), ["added", "conflict"]);
      }
    },
  };
}

const LONG = "a".repeat(60_000);

const ASCII = ["", " ", "a", "a ", "E", "e", "?", "\\", "\u0001", LONG, `${LONG}b`, `${LONG}c`];
const QUOTES = ["'", "''", '"', '""', "\\'", "a'b", "a''b"];
const LINES = ["\n", "\r", "\r\n", "\n\n"];
const WORDS = ["null", "NULL", "undefined", "\\N", "0", "00", "true"];
const UNICODE = ["é", "e\u0301", "\uFF45", "\uFEFF", "\u200B", "\uFFFD", "\u{10FFFF}", "🌱", "🌿"];

/**
 * All different. Each is easily altered on its way, and some are equal by an inexact comparison.
 */
const TEXTS = [...ASCII, ...QUOTES, ...LINES, ...WORDS, ...UNICODE];

/** Stores each text under an id of its own, and then adds every other text under that id. */
async function assertDistinct(
  store: Pick<Database, "plants">,
  texts: readonly (string | undefined)[],
  plantWith: (id: bigint, text: string | undefined) => NewPlant,
): Promise<void> {
  const all = texts.map((text, id) => plantWith(BigInt(id), text));
  assert.deepEqual(await add(store, all), filled(all, "added"));
  assert.deepEqual(await add(store, all), filled(all, "present"));

  for (const [id, stored] of texts.entries()) {
    const others = texts.filter((text) => text !== stored);
    const outcomes = await add(
      store,
      others.map((text) => plantWith(BigInt(id), text)),
    );
    const taken = others.filter((_, index) => outcomes[index] !== "conflict");
    assert.deepEqual(taken.map(shown), [], `The store takes other texts for ${shown(stored)}`);
  }
}

/** A text in a message: in escaped ASCII, and shortened in the middle if it is long. */
function shown(text: string | undefined): string {
  if (text === undefined) return "an absent one";
  const short = text.length > 20 ? `${text.slice(0, 3)}…${text.slice(-3)}` : text;
  return JSON.stringify(short).replace(
    /[^ -~…]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function filled<Outcome>(plants: readonly NewPlant[], outcome: Outcome): Outcome[] {
  return plants.map(() => outcome);
}
