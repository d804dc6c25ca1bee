import { describe, expect, test } from "bun:test";
import assert from "node:assert/strict";

import type { ServingDatabase, ServingOptions } from "../../src/database/adapter.ts";
import {
  add,
  type Cases,
  type ContractCase,
  contractCases,
} from "../../src/database/contract/contract_case.ts";
import {
  FIELD_EXAMPLES,
  plantStoreContract,
  type ReopenPlantStore,
} from "../../src/database/contract/plant_store_contract.ts";
import { tokenStoreContract } from "../../src/database/contract/token_store_contract.ts";
import type { Database } from "../../src/database/database.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import {
  INT64_MAX,
  INT64_MIN,
  kindOf,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
  plantOf,
} from "../../src/plant/plant.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "./plants.ts";

/**
 * Holds an adapter to the comments of the ports: `databaseContract` says what `open` and `reopen`
 * give.
 */
export function testDatabaseContract(
  adapter: string,
  open: OpenDatabase,
  reopen?: OpenDatabase,
): void {
  describe(`${adapter} keeps the contract of Database`, () => {
    for (const { name, run } of databaseContract(open, reopen)) test(name, run);
  });
}

/** Holds an adapter to the comments of the database of a server. */
export function testServingContract(
  adapter: string,
  open: (options: ServingOptions) => Promise<ServingDatabase>,
): void {
  const makeQueue = (...[store, maxInFlight]: Parameters<ServingOptions["makeQueue"]>) =>
    groupCommit(store, { maxInFlight });

  test(`${adapter} keeps the contract of ServingDatabase`, async () => {
    await using database = await open({ makeQueue, create: true });

    await database.ready();
    const plant = fern({ id: 7n });
    expect(await database.plants.add(plant)).toBe("added");
    expect(await database.plants.add(plant)).toBe("present");
    expect(await database.tokens.list()).toEqual([]);

    for (const { name, type, value } of database.metrics()) {
      expect(name).toMatch(/^[a-z][a-z0-9_]*$/);
      expect([name, type]).toEqual([name, name.endsWith("_total") ? "counter" : "gauge"]);
      expect([name, Number.isFinite(value)]).toEqual([name, true]);
    }
    expect(await Promise.race([database.failed, "pending"])).toBe("pending");

    await database.plants.drain(1_000);
    await expect(database.plants.add(plant)).rejects.toMatchObject({ code: "shutting_down" });
  });
}

/** Opens a new, empty database. */
export type OpenDatabase = () => Promise<Database>;

/**
 * The contract of a {@linkcode Database} as tests, including its plants and its tokens.
 *
 * @param open Opens a new, empty database. Each test disposes of its own.
 * @param reopen Opens the database of the last `open` again, while it is open, as another process
 *   would.
 */
export function databaseContract(open: OpenDatabase, reopen?: OpenDatabase): ContractCase[] {
  return [
    ...plantStoreContract(open, reopen && (async () => withRead(await reopen()))),
    ...contractCases("Database", open, CASES),
    ...tokenStoreContract(open, reopen),
  ];
}

function withRead(database: Database): Awaited<ReturnType<ReopenPlantStore>> {
  return {
    plants: database.plants,
    read: async (id) => (await allOf(database)).find((plant) => plant.id === id),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

const CASES: Cases<Database> = {
  async "pages() of nothing is no page"(database) {
    assert.deepEqual(await allOf(database), []);
  },

  async "pages() is empty after plants.probe()"(database) {
    await database.plants.probe();
    assert.deepEqual(await allOf(database), []);
  },

  async "pages() gives every plant as it was added, ordered by id"(database) {
    const plants: NewPlant[] = [
      fern({ id: INT64_MIN, [TEXT]: "" }),
      fern({ id: -1n, [OPTIONAL_TEXT]: "" }),
      fern({ id: 0n, [TEXT]: "\u{10FFFF}\u0001", [OPTIONAL_TEXT]: "indoor" }),
      fern({ id: 2n ** 53n + 1n, [TEXT]: "odd" }),
      fern({ id: INT64_MAX, [TEXT]: "last" }),
    ];
    await add(database, plants.toReversed());
    assert.deepEqual(await allOf(database), plants);
  },

  async "pages() gives every field, each with its own value"(database) {
    // A kind may have fewer values than a plant has fields.
    const valueOf = (field: keyof Plant) => {
      const examples = FIELD_EXAMPLES[kindOf(field)];
      return examples[PLANT_FIELDS.indexOf(field) % examples.length];
    };
    const plants = [plantOf(1n, valueOf)];
    await add(database, plants);
    assert.deepEqual(await allOf(database), plants);
  },

  async "pages() reads more plants than a page holds, each once"(database) {
    const plants = Array.from({ length: 10_001 }, (_, index) =>
      fern({ id: index * 3, [TEXT]: `plant ${index}` }),
    );
    await add(database, plants);
    assert.deepEqual(await allOf(database), plants);
  },

  async "pages() has what was stored when it began, while others are added"(database) {
    const plants = Array.from({ length: 5_000 }, (_, index) =>
      fern({ id: index * 2, [TEXT]: "early" }),
    );
    await add(database, plants);
    const seen: NewPlant[] = [];
    let late = 9_999n;

    for await (const page of database.pages()) {
      seen.push(...page);
      // One id after those that were read, and one before: a later page may have the first.
      const others = [late, -late].map((id) => fern({ id, [TEXT]: "late" }));
      await add(database, others);
      late -= 2n;
    }

    const early = seen.filter((plant) => plant[TEXT] === "early");
    assert.deepEqual(plain(early), plants);
  },

  async "find() gives the plants with these ids, each as it was added"(database) {
    const plants = [INT64_MIN, -1n, 0n, 2n ** 53n + 1n, INT64_MAX].map((id) =>
      fern({ id, [TEXT]: String(id) }),
    );
    await add(database, plants);
    const found = await database.find([...plants.slice(1).map(({ id }) => id), 7n]);
    assert.deepEqual(plain(found).toSorted(byId), plants.slice(1));
    assert.deepEqual(await database.find([7n]), []);
    assert.deepEqual(await database.find([]), []);
  },

  async "count() is how many plants there are"(database) {
    assert.equal(await database.count(), 0);
    await add(
      database,
      [INT64_MIN, 0n, INT64_MAX].map((id) => fern({ id })),
    );
    assert.equal(await database.count(), 3);
  },

  async "delete() deletes the plants with these ids and no other, and their ids are free"(
    database,
  ) {
    const plants = [INT64_MIN, 1n, 2n, INT64_MAX].map((id) => fern({ id }));
    await add(database, plants);
    await database.delete([INT64_MIN, 2n, 7n]);
    assert.deepEqual(await allOf(database), [plants[1], plants[3]]);

    const other = fern({ id: 2n, [TEXT]: "other" });
    assert.deepEqual(await add(database, [other]), ["added"]);
    await database.delete([]);
    assert.equal(await database.count(), 3);
  },

  async "tokens.revision() does not change with plants"(database) {
    const revision = await database.tokens.revision();
    await add(database, [fern()]);
    assert.equal(await database.tokens.revision(), revision);
  },
};

async function allOf(database: Pick<Database, "pages">): Promise<NewPlant[]> {
  const pages = await Array.fromAsync(database.pages());
  for (const page of pages) assert.notEqual(page.length, 0, "pages() gave an empty page");
  return plain(pages.flat());
}

function byId(one: NewPlant, other: NewPlant): number {
  return one.id < other.id ? -1 : 1;
}

/** Rows of a driver may have another prototype. */
function plain(plants: readonly NewPlant[]): NewPlant[] {
  return plants.map((plant) => ({ ...plant }));
}
