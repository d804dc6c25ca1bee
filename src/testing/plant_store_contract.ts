import assert from "node:assert/strict";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant.ts";
import type { PlantStore } from "../plant_store.ts";
import { type Cases, type ContractCase, contractCases, type OpenDatabase, TIMEOUT_MS } from "./contract_case.ts";

/**
 * The contract of a {@linkcode PlantStore} as tests.
 *
 * @param open Gives a new, empty store as `plants`, which each test disposes of.
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
export function plantStoreContract(open: OpenDatabase<"plants">): ContractCase[] {
  return contractCases("PlantStore", open, CASES);
}

const FERN: NewPlant = { id: 1n, name: "Fern" };
const MOSS: NewPlant = { id: 2n, name: "Moss", tag: "indoor" };

const CASES: Cases<"plants"> = {
  async "add() gives each plant's own outcome, in order"({ plants }) {
    const add = adderOf(plants);
    assert.deepEqual(await add([FERN]), ["added"]);
    const batch = [MOSS, FERN, { ...FERN, name: "Ivy" }, { id: 3n, name: "Ivy" }];
    assert.deepEqual(await add(batch), ["added", "present", "conflict", "added"]);
  },

  async "add() of the identical plant changes nothing, however often"({ plants }) {
    const add = adderOf(plants);
    assert.deepEqual(await add([MOSS]), ["added"]);
    assert.deepEqual(await add([MOSS, MOSS]), ["present", "present"]);
  },

  async "add() leaves the stored plant as it was when another one conflicts with it"({ plants }) {
    const add = adderOf(plants);
    await add([MOSS]);
    assert.deepEqual(await add([{ ...MOSS, name: "Ivy" }]), ["conflict"]);
    assert.deepEqual(await add([{ ...MOSS, tag: "outdoor" }]), ["conflict"]);
    assert.deepEqual(await add([{ id: MOSS.id, name: MOSS.name }]), ["conflict"]);
    assert.deepEqual(await add([MOSS]), ["present"]);
  },

  async "add() lets the first of the same id in a batch count"({ plants }) {
    const add = adderOf(plants);
    const ivy = { ...FERN, name: "Ivy" };
    assert.deepEqual(await add([FERN, ivy, FERN]), ["added", "conflict", "present"]);
    assert.deepEqual(await add([ivy]), ["conflict"]);
  },

  async "add() tells an absent tag from an empty one"({ plants }) {
    const add = adderOf(plants);
    await add([FERN]);
    assert.deepEqual(await add([{ ...FERN, tag: "" }]), ["conflict"]);
  },

  async "add() keeps every int64 exactly"({ plants }) {
    const add = adderOf(plants);
    const ids = [INT64_MIN, INT64_MIN + 1n, -1n, 0n, 2n ** 53n, 2n ** 53n + 1n, INT64_MAX - 1n, INT64_MAX];
    const all = ids.map((id) => ({ id, name: `plant ${id}` }));
    assert.deepEqual(await add(all), filled(all, "added"));
    assert.deepEqual(await add(all), filled(all, "present"));
  },

  async "add() keeps every string exactly"({ plants }) {
    const add = adderOf(plants);
    const all = NAMES.map((name, index) => ({ id: BigInt(index), name, tag: name }));
    assert.deepEqual(await add(all), filled(all, "added"));
    assert.deepEqual(await add(all), filled(all, "present"));
    const swapped = all.map((plant, index) => ({ ...plant, name: NAMES.at(index - 1) ?? "" }));
    assert.deepEqual(await add(swapped), filled(all, "conflict"));
  },

  async "add() of nothing is nothing"({ plants }) {
    assert.deepEqual(await adderOf(plants)([]), []);
  },

  async "probe() resolves while plants can be stored, and stores none"({ plants }) {
    await plants.probe();
    assert.deepEqual(await adderOf(plants)([FERN]), ["added"]);
  },
};

/** No two are equal, and each is easily altered on the way. */
const NAMES = ["", " ", "'", '"', "\\", "é", "e\u0301", "\u{10FFFF}", "\u0001", "\uFEFF", "🌱", "a".repeat(60_000)];

function adderOf(store: PlantStore) {
  return (batch: readonly NewPlant[]) => store.add(batch, { timeoutMs: TIMEOUT_MS });
}

function filled<Outcome>(plants: readonly NewPlant[], outcome: Outcome): Outcome[] {
  return plants.map(() => outcome);
}
