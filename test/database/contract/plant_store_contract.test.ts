import { expect, setDefaultTimeout, test } from "bun:test";

import { eventLoopTurn, pause } from "../../../src/async/timers.ts";
import {
  type ContractCase,
  plantStoreContract,
  tokenStoreContract,
} from "../../../src/database/contract/mod.ts";
import { memoryDatabase } from "../../../src/database/memory.ts";
import type { AddOutcome, PlantStore } from "../../../src/group_commit/plant_store.ts";
import {
  type FieldValue,
  kindOf,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
  plantOf,
  samePlant,
  sizeOf,
} from "../../../src/plant/plant.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "../../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { virtualTime } from "../../support/virtual_time.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What is wrong with a store; nothing, where it is empty. */
interface Bug {
  /** What it makes of a name or a tag, before it stores and compares it. */
  readonly name?: (text: string) => string;
  readonly tag?: (text: string) => string | undefined;
  /** The tag that it stores if there is none. */
  readonly noTag?: string;
  /** How many plants it takes at once. */
  readonly maxBatch?: number;
  /** Waits between the look whether an id is taken and the write. */
  readonly afterLookup?: () => Promise<void>;
  /** What its probe stores. */
  readonly probe?: NewPlant;
  /** What it does with a batch that was given to it. */
  readonly change?: (batch: NewPlant[]) => unknown;
  /** When it writes what others see; it sees it itself at once. @default before it answers */
  readonly commits?: "never" | "later";
  /** Whether it reads what is stored once, when it is opened. */
  readonly readsOnce?: boolean;
}

const cut = (text: string) => text.slice(0, 255);
const ascii = (text: string) => text.replace(/[\u{10000}-\u{10FFFF}]/gu, "?");
const NAMES = `add() keeps every ${TEXT} exactly`;
const TAGS = `add() keeps every ${OPTIONAL_TEXT} exactly`;
/** The cases of all texts, those of a fork too. */
const TEXTS = PLANT_FIELDS.filter((field) => kindOf(field) === "text").map(
  (field) => `add() keeps every ${field} exactly`,
);
const UNCHANGED = "add() leaves the batch as it is";
const COMMITTED =
  "add() has committed when it resolves: the same store, opened beside it, reads the plants";
const TWINS = "add() tells nobody that a plant is present before it is committed";
const KEPT = "add() keeps plants that were added before the store is opened again";
const COMPARED = "add() compares with what the same store has added that is opened beside it";
const OPPOSITE = "add() of batches in opposite orders at the same time stores each plant once";
const OPPOSITE_STORES =
  "add() of batches in opposite orders, through two stores, stores each plant once";

test.each<[what: string, bug: Bug, failing: string[]]>([
  ["no bug", {}, []],
  [
    "a wait between look-up and write",
    { afterLookup: () => Promise.resolve() },
    [
      "add() lets one of many different plants have an id, when they are added at the same time",
      "add() stores one of many identical plants that are added at the same time",
      OPPOSITE,
      TWINS,
      COMPARED,
      OPPOSITE_STORES,
    ],
  ],
  ["names compared without case", { name: (text) => text.toLowerCase() }, [NAMES, KEPT]],
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
    { probe: fern({ id: 42n, [TEXT]: "probe" }) },
    ["probe() resolves while plants can be stored, and stores none"],
  ],
  ["no commit", { commits: "never" }, [COMMITTED, TWINS, KEPT, COMPARED, OPPOSITE_STORES]],
  [
    "a commit after the answer",
    { commits: "later" },
    [COMMITTED, TWINS, KEPT, COMPARED, OPPOSITE_STORES],
  ],
  [
    "plants that are read when it is opened",
    { readsOnce: true },
    [TWINS, COMPARED, OPPOSITE_STORES],
  ],
  ["line ends as LF", { name: (text) => text.replaceAll("\r\n", "\n") }, [NAMES]],
  ["quotes that are unescaped", { name: (text) => text.replaceAll("''", "'") }, [NAMES]],
  ["a tag of null for none", { tag: (text) => (text === "null" ? undefined : text) }, [TAGS]],
  ["a tag of undefined for none", { noTag: "undefined" }, [TAGS, KEPT]],
  [
    "a batch sorted in place",
    {
      change: (batch) =>
        batch.splice(0, Infinity, ...batch.toSorted((one, other) => Number(one.id - other.id))),
    },
    [UNCHANGED],
  ],
  [
    "plants trimmed in place",
    {
      change: (batch) =>
        batch.forEach((plant, index) => (batch[index] = { ...plant, [TEXT]: plant[TEXT].trim() })),
    },
    [UNCHANGED, NAMES],
  ],
])("plantStoreContract() finds in a store with %s what is wrong", async (_what, bug, failing) => {
  const found = await failingOn((disk) => storeWith(bug, disk));
  expect(found.toSorted()).toEqual(failing.toSorted());
});

// Faults of what a store does, and when.
test.each<[what: string, make: () => OpenOn, failing: string[]]>([
  ["no fault", () => (disk) => ({ add: async (batch) => addTo(disk, batch), probe }), []],
  [
    "a commit after the answer, for which others wait, as for an open transaction",
    () => {
      const open = new Map<bigint, Promise<void>>();
      return (disk) => ({
        async add(batch) {
          const ids = batch.map(({ id }) => id);
          while (ids.some((id) => open.has(id))) await Promise.all(ids.map((id) => open.get(id)));

          const outcomes = addTo(new Map(disk), batch);
          const committed = pause(1).then(() => {
            addTo(disk, batch);
            for (const id of ids) open.delete(id);
          });
          for (const id of ids) open.set(id, committed);
          return outcomes;
        },
        probe,
      });
    },
    [COMMITTED, TWINS, KEPT],
  ],
  [
    "a twin that is present while the first one's commit is on its way",
    () => {
      const onTheirWay = new Map<bigint, Plant>();
      return (disk) => ({
        async add(batch) {
          const isTwin = ({ id, ...plant }: NewPlant) => {
            const first = onTheirWay.get(id);
            return first !== undefined && samePlant(first, plant);
          };
          if (batch.length > 0 && batch.every(isTwin)) return batch.map(() => "present" as const);

          for (const { id, ...plant } of batch) onTheirWay.set(id, plant);
          await pause(1);
          for (const { id } of batch) onTheirWay.delete(id);
          return addTo(disk, batch);
        },
        probe,
      });
    },
    [TWINS],
  ],
  [
    "a table that is emptied at every opening",
    () => (disk) => {
      disk.clear();
      return { add: async (batch) => addTo(disk, batch), probe };
    },
    [KEPT],
  ],
  [
    "rows that are locked in the order of the batch",
    () => {
      const locks = new Set<bigint>();
      return (disk) => ({
        async add(batch) {
          const own: bigint[] = [];
          try {
            for (const id of new Set(batch.map((plant) => plant.id))) {
              for (let turns = 0; locks.has(id); turns++) {
                if (turns === 200) throw new Error("deadlock detected");
                await eventLoopTurn();
              }
              locks.add(id);
              own.push(id);
              if (batch.length < 100) await eventLoopTurn();
            }
            return addTo(disk, batch);
          } finally {
            for (const id of own) locks.delete(id);
          }
        },
        probe,
      });
    },
    [OPPOSITE, OPPOSITE_STORES],
  ],
  [
    "a limit of 512 KiB of text at once",
    () => (disk) => ({
      async add(batch) {
        const units = batch.reduce((sum, plant) => sum + sizeOf(plant), 0);
        if (units > 2 ** 19) throw new RangeError("packet too large");
        return addTo(disk, batch);
      },
      probe,
    }),
    ["add() takes a batch with a megabyte of text, in characters of three bytes"],
  ],
  [
    "texts cut at 62,000 characters",
    () => (disk) => ({
      async add(batch) {
        const cutAt = (value: FieldValue | undefined) =>
          typeof value === "string" ? value.slice(0, 62_000) : value;
        return addTo(
          disk,
          batch.map((plant) => plantOf(plant.id, (field) => cutAt(plant[field]))),
        );
      },
      probe,
    }),
    TEXTS,
  ],
  [
    "a `timeoutMs` that it ignores",
    () => (disk) => ({
      async add(batch, { timeoutMs }) {
        if (timeoutMs < 10_000) await pause(3_000);
        return addTo(disk, batch);
      },
      probe,
    }),
    ["add() settles by its timeoutMs"],
  ],
])("plantStoreContract() finds in a store with %s what is wrong", async (_what, make, failing) => {
  using time = virtualTime();
  const found = await time.until(failingOn(make()));
  expect(found.toSorted()).toEqual(failing.toSorted());
});

test("plantStoreContract() does not hang with a store that never settles", async () => {
  using time = virtualTime();
  const plants: PlantStore = { add: () => new Promise(() => {}), probe };
  const open = async () => ({ plants, async [Symbol.asyncDispose]() {} });

  for (const { run } of plantStoreContract(open)) {
    const ended = time.until(run().then(() => "passed", String));
    expect(await ended).toMatch(
      /^AssertionError.*: add\(\) did not settle within its timeoutMs of \d+$/,
    );
  }
});

/** Opens a store over what all stores of one disk see. */
type OpenOn = (disk: Map<bigint, Plant>) => PlantStore;

/** The cases that fail with a store that is opened on a new disk for each, and again on the same one. */
async function failingOn(openOn: OpenOn): Promise<string[]> {
  let disk = new Map<bigint, Plant>();
  const reopen = async () => ({
    plants: openOn(disk),
    read: async (id: bigint) => disk.get(id),
    async [Symbol.asyncDispose]() {},
  });
  const open = () => {
    disk = new Map();
    return reopen();
  };

  const failing = await failingCases(plantStoreContract(open, reopen));
  return failing.map((name) => name.replace("PlantStore.", ""));
}

function addTo(rows: Map<bigint, Plant>, batch: readonly NewPlant[]): AddOutcome[] {
  return batch.map(({ id, ...plant }) => {
    const stored = rows.get(id);
    if (stored !== undefined) return samePlant(stored, plant) ? "present" : "conflict";
    rows.set(id, plant);
    return "added";
  });
}

async function probe(): Promise<void> {}

test("without reopen() plantStoreContract() leaves out what only shows on a store that is opened twice", () => {
  const open = async () => ({
    plants: storeWith({}),
    read: async () => undefined,
    async [Symbol.asyncDispose]() {},
  });
  const names = (cases: readonly ContractCase[]) => cases.map(({ name }) => name);
  const once = names(plantStoreContract(open));
  expect(names(plantStoreContract(open, open))).toEqual([
    ...once,
    ...[COMMITTED, TWINS, KEPT, COMPARED, OPPOSITE_STORES].map((name) => `PlantStore.${name}`),
  ]);
});

test("tokenStoreContract() finds a store of tokens that never commits", async () => {
  const open = async () => memoryDatabase();
  expect(await failingCases(tokenStoreContract(open, open))).toEqual([
    "TokenStore.add(), recordUses(), revoke(), delete() and prune() have committed when they resolve",
  ]);
});

test("plantStoreContract() says which values a store takes for each other", async () => {
  const open = async () => ({
    plants: storeWith({ tag: (text) => text.normalize() }),
    async [Symbol.asyncDispose]() {},
  });
  const tags = plantStoreContract(open).find(({ name }) => name === `PlantStore.${TAGS}`);
  await expect(tags?.run()).rejects.toThrow('The store takes other values for "\\u00e9"');
});

async function failingCases(cases: readonly ContractCase[]): Promise<string[]> {
  const failing: string[] = [];
  for (const { name, run } of cases) await run().catch(() => failing.push(name));
  return failing;
}

/** A store that has this bug, over what all stores of one disk see. */
function storeWith(bug: Bug, disk = new Map<bigint, Plant>()): PlantStore {
  const same = (text: string) => text;
  const {
    name = same,
    tag = same,
    noTag,
    maxBatch = Infinity,
    afterLookup,
    probe,
    change,
    commits,
    readsOnce,
  } = bug;

  /** What it read when it was opened, and has written. */
  const own = new Map(readsOnce ? disk : []);

  async function addOne(plant: NewPlant): Promise<AddOutcome> {
    const { id, [OPTIONAL_TEXT]: given, ...others } = plant;
    const keptTag = given === undefined ? noTag : tag(given);
    const kept = {
      ...others,
      [TEXT]: name(plant[TEXT]),
      ...(keptTag !== undefined && { [OPTIONAL_TEXT]: keptTag }),
    };
    const stored = own.get(id) ?? (readsOnce ? undefined : disk.get(id));

    if (stored !== undefined) return samePlant(stored, kept) ? "present" : "conflict";
    if (afterLookup !== undefined) await afterLookup();
    own.set(id, kept);
    if (commits === undefined) disk.set(id, kept);
    if (commits === "later") setTimeout(() => disk.set(id, kept), 1);

    return "added";
  }

  return {
    async add(batch) {
      if (batch.length > maxBatch)
        throw new RangeError(`Cannot add ${batch.length} plants: at most ${maxBatch}`);
      const plants = [...batch];
      change?.(batch as NewPlant[]);
      const outcomes: AddOutcome[] = [];
      for (const plant of plants) outcomes.push(await addOne(plant));
      return outcomes;
    },
    probe: async () => void (probe && disk.set(probe.id, probe)),
  };
}
