import { describe, expect, test } from "bun:test";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../../src/plant.ts";
import type { PlantStore } from "../../src/plant_store.ts";

/** Holds an adapter to the comments of the port. `open` gives a fresh, empty store. */
export function storeContract(adapter: string, open: () => PlantStore | Promise<PlantStore>): void {
  const fern: NewPlant = { id: 1n, name: "Fern" };
  const moss: NewPlant = { id: 2n, name: "Moss", tag: "indoor" };

  describe(`${adapter} keeps the contract of PlantStore`, () => {
    test("add() gives each plant's own outcome, in order", async () => {
      await using store = await open();
      expect(await store.add([fern])).toEqual(["added"]);
      const batch = [moss, fern, { ...fern, name: "Ivy" }, { id: 3n, name: "Ivy" }];
      expect(await store.add(batch)).toEqual(["added", "present", "conflict", "added"]);
    });

    test("add() of the identical plant changes nothing, however often", async () => {
      await using store = await open();
      expect(await store.add([moss])).toEqual(["added"]);
      expect(await store.add([moss, moss])).toEqual(["present", "present"]);
    });

    test("add() leaves the stored plant as it was when another one conflicts with it", async () => {
      await using store = await open();
      await store.add([moss]);
      expect(await store.add([{ ...moss, name: "Ivy" }])).toEqual(["conflict"]);
      expect(await store.add([{ ...moss, tag: "outdoor" }])).toEqual(["conflict"]);
      expect(await store.add([{ id: moss.id, name: moss.name }])).toEqual(["conflict"]);
      expect(await store.add([moss])).toEqual(["present"]);
    });

    test("add() lets the first of the same id in a batch count", async () => {
      await using store = await open();
      const ivy = { ...fern, name: "Ivy" };
      expect(await store.add([fern, ivy, fern])).toEqual(["added", "conflict", "present"]);
      expect(await store.add([ivy])).toEqual(["conflict"]);
    });

    test("add() tells an absent tag from an empty one", async () => {
      await using store = await open();
      await store.add([fern]);
      expect(await store.add([{ ...fern, tag: "" }])).toEqual(["conflict"]);
    });

    test("add() keeps every int64 exactly", async () => {
      await using store = await open();
      const ids = [INT64_MIN, INT64_MIN + 1n, -1n, 0n, 2n ** 53n, 2n ** 53n + 1n, INT64_MAX - 1n, INT64_MAX];
      const plants = ids.map((id) => ({ id, name: `plant ${id}` }));
      expect(await store.add(plants)).toEqual(ids.map(() => "added"));
      expect(await store.add(plants)).toEqual(ids.map(() => "present"));
    });

    test("add() keeps every string exactly", async () => {
      await using store = await open();
      const names = [
        "",
        " ",
        "'",
        '"',
        "\\",
        "é",
        "e\u0301",
        "\u{10FFFF}",
        "\u0001",
        "\uFEFF",
        "🌱",
        "a".repeat(60_000),
      ];
      const plants = names.map((name, index) => ({ id: BigInt(index), name, tag: name }));
      expect(await store.add(plants)).toEqual(names.map(() => "added"));
      expect(await store.add(plants)).toEqual(names.map(() => "present"));
      const swapped = plants.map((plant, index) => ({ ...plant, name: names.at(index - 1) ?? "" }));
      expect(await store.add(swapped)).toEqual(names.map(() => "conflict"));
    });

    test("add() of nothing is nothing", async () => {
      await using store = await open();
      expect(await store.add([])).toEqual([]);
    });

    test("probe() resolves while plants can be stored, and stores none", async () => {
      await using store = await open();
      await store.probe();
      expect(await store.add([fern])).toEqual(["added"]);
    });
  });
}
