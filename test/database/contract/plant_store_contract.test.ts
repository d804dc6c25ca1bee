import { expect, setDefaultTimeout, test } from "bun:test";
import { memoryDatabase } from "../../../src/database/memory.ts";
import { type NewPlant, type Plant, samePlant } from "../../../src/plant/plant.ts";
import type { AddOutcome, PlantStore } from "../../../src/database/plant_store.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { type ContractCase, databaseContract, plantStoreContract } from "../../../src/database/contract/mod.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What is wrong with a store; nothing, where it is empty. */
interface Bug {
  /** What it makes of a name or a tag, before it stores and compares it. */
  readonly name?: (text: string) => string;
  readonly tag?: (text: string) => string;
  /** How many plants it takes at once. */
  readonly maxBatch?: number;
  /** Waits between the look whether an id is taken and the write. */
  readonly afterLookup?: () => Promise<void>;
  /** What its probe stores. */
  readonly probe?: NewPlant;
}

const cut = (text: string) => text.slice(0, 255);
const ascii = (text: string) => text.replace(/[\u{10000}-\u{10FFFF}]/gu, "?");
const NAMES = "add() keeps every name exactly";
const TAGS = "add() keeps every tag exactly";

test.each<[what: string, bug: Bug, failing: string[]]>([
  ["no bug", {}, []],
  [
    "a wait between look-up and write",
    { afterLookup: () => Promise.resolve() },
    [
      "add() lets one of many different plants have an id, when they are added at the same time",
      "add() stores one of many identical plants that are added at the same time",
    ],
  ],
  ["names compared without case", { name: (text) => text.toLowerCase() }, [NAMES]],
  ["names that lose the spaces at their end", { name: (text) => text.trimEnd() }, [NAMES]],
  ["tags in NFC", { tag: (text) => text.normalize() }, [TAGS]],
  ["texts cut at 255 characters", { name: cut, tag: cut }, [NAMES, TAGS]],
  ["characters past the BMP as ?", { name: ascii, tag: ascii }, [NAMES, TAGS]],
  [
    "1,000 plants at once at most",
    { maxBatch: 1_000 },
    ["add() takes 10,000 plants at once, as many as a full queue has"],
  ],
  [
    "a probe that stores a plant",
    { probe: { id: 0n, name: "probe" } },
    ["probe() resolves while plants can be stored, and stores none"],
  ],
])("plantStoreContract() finds in a store with %s what is wrong", async (_what, bug, failing) => {
  const open = async () => ({ plants: storeWith(bug), async [Symbol.asyncDispose]() {} });
  expect(await failingCases(plantStoreContract(open))).toEqual(failing.map((name) => `PlantStore.${name}`));
});

test("plantStoreContract() says which texts a store takes for each other", async () => {
  const open = async () => ({
    plants: storeWith({ tag: (text) => text.normalize() }),
    async [Symbol.asyncDispose]() {},
  });
  const tags = plantStoreContract(open).find(({ name }) => name === `PlantStore.${TAGS}`);
  await expect(tags?.run()).rejects.toThrow('The store takes other texts for "\\u00e9"');
});

test("databaseContract() finds a plant that a probe stored, whatever its id", async () => {
  const open = async () => {
    const database = memoryDatabase();
    const probe = async () => void (await database.plants.add([{ id: 42n, name: "probe" }], { timeoutMs: 1_000 }));
    return { ...database, plants: { ...database.plants, probe } };
  };
  expect(await failingCases(databaseContract(open))).toEqual(["Database.pages() is empty after plants.probe()"]);
});

async function failingCases(cases: readonly ContractCase[]): Promise<string[]> {
  const failing: string[] = [];
  for (const { name, run } of cases) await run().catch(() => failing.push(name));
  return failing;
}

/** A store in memory that has this bug. */
function storeWith({ name = same, tag = same, maxBatch = Infinity, afterLookup, probe }: Bug): PlantStore {
  const rows = new Map<bigint, Plant>();

  async function addOne(plant: NewPlant): Promise<AddOutcome> {
    const kept = { name: name(plant.name), ...(plant.tag !== undefined && { tag: tag(plant.tag) }) };
    const stored = rows.get(plant.id);
    if (stored !== undefined) return samePlant(stored, kept) ? "present" : "conflict";
    if (afterLookup !== undefined) await afterLookup();
    rows.set(plant.id, kept);
    return "added";
  }

  return {
    async add(batch) {
      if (batch.length > maxBatch) throw new RangeError(`Cannot add ${batch.length} plants: at most ${maxBatch}`);
      const outcomes: AddOutcome[] = [];
      for (const plant of batch) outcomes.push(await addOne(plant));
      return outcomes;
    },
    probe: async () => void (probe && rows.set(probe.id, probe)),
  };
}

function same(text: string): string {
  return text;
}
