import { describe, expect, test } from "bun:test";
import type { Database } from "../../src/database.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../../src/plant.ts";
import { SCOPES } from "../../src/scopes.ts";
import type { NewToken, TokenRecord } from "../../src/token_store.ts";
import { TEST_TIMEOUT_MS } from "./program.ts";

/** Holds an adapter to the comments of the ports. `open` gives a fresh, empty database. */
export function databaseContract(adapter: string, open: () => Promise<Database>): void {
  plantStoreContract(adapter, open);
  pagesContract(adapter, open);
  tokenStoreContract(adapter, open);
}

function plantStoreContract(adapter: string, open: () => Promise<Database>): void {
  const fern: NewPlant = { id: 1n, name: "Fern" };
  const moss: NewPlant = { id: 2n, name: "Moss", tag: "indoor" };

  describe(`${adapter} keeps the contract of PlantStore`, () => {
    test("add() gives each plant's own outcome, in order", async () => {
      await using database = await open();
      const add = adderOf(database);
      expect(await add([fern])).toEqual(["added"]);
      const batch = [moss, fern, { ...fern, name: "Ivy" }, { id: 3n, name: "Ivy" }];
      expect(await add(batch)).toEqual(["added", "present", "conflict", "added"]);
    });

    test("add() of the identical plant changes nothing, however often", async () => {
      await using database = await open();
      const add = adderOf(database);
      expect(await add([moss])).toEqual(["added"]);
      expect(await add([moss, moss])).toEqual(["present", "present"]);
    });

    test("add() leaves the stored plant as it was when another one conflicts with it", async () => {
      await using database = await open();
      const add = adderOf(database);
      await add([moss]);
      expect(await add([{ ...moss, name: "Ivy" }])).toEqual(["conflict"]);
      expect(await add([{ ...moss, tag: "outdoor" }])).toEqual(["conflict"]);
      expect(await add([{ id: moss.id, name: moss.name }])).toEqual(["conflict"]);
      expect(await add([moss])).toEqual(["present"]);
    });

    test("add() lets the first of the same id in a batch count", async () => {
      await using database = await open();
      const add = adderOf(database);
      const ivy = { ...fern, name: "Ivy" };
      expect(await add([fern, ivy, fern])).toEqual(["added", "conflict", "present"]);
      expect(await add([ivy])).toEqual(["conflict"]);
    });

    test("add() tells an absent tag from an empty one", async () => {
      await using database = await open();
      const add = adderOf(database);
      await add([fern]);
      expect(await add([{ ...fern, tag: "" }])).toEqual(["conflict"]);
    });

    test("add() keeps every int64 exactly", async () => {
      await using database = await open();
      const add = adderOf(database);
      const ids = [INT64_MIN, INT64_MIN + 1n, -1n, 0n, 2n ** 53n, 2n ** 53n + 1n, INT64_MAX - 1n, INT64_MAX];
      const plants = ids.map((id) => ({ id, name: `plant ${id}` }));
      expect(await add(plants)).toEqual(ids.map(() => "added"));
      expect(await add(plants)).toEqual(ids.map(() => "present"));
    });

    test("add() keeps every string exactly", async () => {
      await using database = await open();
      const add = adderOf(database);
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
      expect(await add(plants)).toEqual(names.map(() => "added"));
      expect(await add(plants)).toEqual(names.map(() => "present"));
      const swapped = plants.map((plant, index) => ({ ...plant, name: names.at(index - 1) ?? "" }));
      expect(await add(swapped)).toEqual(names.map(() => "conflict"));
    });

    test("add() of nothing is nothing", async () => {
      await using database = await open();
      const add = adderOf(database);
      expect(await add([])).toEqual([]);
    });

    test("probe() resolves while plants can be stored, and stores none", async () => {
      await using database = await open();
      const add = adderOf(database);
      await database.plants.probe();
      expect(await add([fern])).toEqual(["added"]);
    });
  });
}

function adderOf({ plants }: Database) {
  return (batch: readonly NewPlant[]) => plants.add(batch, { timeoutMs: TEST_TIMEOUT_MS });
}

function pagesContract(adapter: string, open: () => Promise<Database>): void {
  async function allOf(database: Database): Promise<NewPlant[]> {
    const pages = await Array.fromAsync(database.pages());
    for (const page of pages) expect(page).not.toBeEmpty();
    return pages.flat();
  }

  describe(`${adapter} keeps the contract of pages()`, () => {
    test("pages() of nothing is no page", async () => {
      await using database = await open();
      expect(await allOf(database)).toEqual([]);
    });

    test("pages() gives every plant as it was added, ordered by id", async () => {
      await using database = await open();
      const plants: NewPlant[] = [
        { id: INT64_MIN, name: "" },
        { id: -1n, name: "Fern", tag: "" },
        { id: 0n, name: "\u{10FFFF}\u0001", tag: "indoor" },
        { id: 2n ** 53n + 1n, name: "odd" },
        { id: INT64_MAX, name: "last" },
      ];
      await adderOf(database)(plants.toReversed());
      expect(await allOf(database)).toEqual(plants);
    });

    test("pages() reads more plants than a page holds, each once", async () => {
      await using database = await open();
      const plants = Array.from({ length: 10_001 }, (_, index) => ({ id: BigInt(index * 3), name: `plant ${index}` }));
      await adderOf(database)(plants);
      expect(await allOf(database)).toEqual(plants);
    });

    test("pages() has what was stored when it began, while others are added", async () => {
      await using database = await open();
      const add = adderOf(database);
      const plants = Array.from({ length: 5_000 }, (_, index) => ({ id: BigInt(index * 2), name: "early" }));
      await add(plants);
      const seen: NewPlant[] = [];
      let late = 9_999n;
      for await (const page of database.pages()) {
        seen.push(...page);
        // Behind what was read, and before it: a later page may have the first.
        await add([
          { id: late, name: "late" },
          { id: -late, name: "late" },
        ]);
        late -= 2n;
      }
      expect(seen.filter(({ name }) => name === "early")).toEqual(plants);
    });
  });
}

function tokenStoreContract(adapter: string, open: () => Promise<Database>): void {
  const CREATED = new Date("2026-01-01T00:00:00.001Z");
  const LATER = new Date("2026-01-01T00:01:00Z");
  const greenhouse = {
    name: "greenhouse",
    digest: new Uint8Array(32).map((_, index) => index * 8),
    createdAt: CREATED,
    expiresAt: LATER,
    scopes: SCOPES,
  };
  const garden = {
    name: "garden",
    digest: new Uint8Array(32).fill(255),
    createdAt: LATER,
    expiresAt: null,
    scopes: ["metrics"] as const,
  };
  const stored = (token: NewToken): TokenRecord => ({
    ...token,
    revokedAt: null,
    lastUsedAt: null,
  });

  describe(`${adapter} keeps the contract of TokenStore`, () => {
    test("list() gives every token as it was added, oldest first", async () => {
      await using database = await open();
      const { tokens } = database;
      expect(await tokens.list()).toEqual([]);
      expect(await tokens.add(garden)).toBe(true);
      expect(await tokens.add(greenhouse)).toBe(true);
      expect(await tokens.list()).toEqual([stored(greenhouse), stored(garden)]);
    });

    test("list() gives many tokens, with exact times, oldest first", async () => {
      await using database = await open();
      const { tokens } = database;
      const all = Array.from({ length: 500 }, (_, index) => ({
        ...garden,
        name: `token ${index}`,
        digest: new Uint8Array(32).fill(index % 256).fill(index >> 8, 31),
        createdAt: new Date(CREATED.getTime() + index),
        expiresAt: index % 3 === 0 ? null : new Date(LATER.getTime() + index * 1_000_003),
      }));
      for (const token of all.toReversed()) expect(await tokens.add(token)).toBe(true);
      expect(await tokens.list()).toEqual(all.map(stored));
    });

    test("add() of a name or a digest that is taken changes nothing", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      expect(await tokens.add({ ...garden, name: greenhouse.name })).toBe(false);
      expect(await tokens.add({ ...garden, digest: greenhouse.digest })).toBe(false);
      expect(await tokens.list()).toEqual([stored(greenhouse)]);
    });

    test("revoke() revokes once, and nothing that is not there", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      expect(await tokens.revoke("garden", LATER)).toBe(false);
      expect(await tokens.revoke("greenhouse", LATER)).toBe(true);
      expect(await tokens.revoke("greenhouse", CREATED)).toBe(false);
      expect(await tokens.list()).toEqual([{ ...stored(greenhouse), revokedAt: LATER }]);
    });

    test("revoke() keeps the name and the digest taken, and leaves other tokens as they are", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      await tokens.add(garden);
      await tokens.revoke("greenhouse", LATER);
      expect(await tokens.add({ ...greenhouse, digest: new Uint8Array(32) })).toBe(false);
      expect(await tokens.add({ ...greenhouse, name: "another" })).toBe(false);
      expect(await tokens.list()).toEqual([{ ...stored(greenhouse), revokedAt: LATER }, stored(garden)]);
    });

    test("recordUses() records the last use of tokens that are there", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      await tokens.recordUses([
        { name: "greenhouse", at: LATER },
        { name: "nobody", at: LATER },
      ]);
      expect(await tokens.list()).toEqual([{ ...stored(greenhouse), lastUsedAt: LATER }]);
    });

    test("recordUses() records many uses at once, of a revoked token too, and none of nothing", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      await tokens.add(garden);
      await tokens.revoke("garden", CREATED);
      await tokens.recordUses([]);
      expect((await tokens.list()).map(({ lastUsedAt }) => lastUsedAt)).toEqual([null, null]);
      await tokens.recordUses(["greenhouse", "garden"].map((name) => ({ name, at: LATER })));
      expect((await tokens.list()).map(({ lastUsedAt }) => lastUsedAt)).toEqual([LATER, LATER]);
    });

    test("recordUses() leaves a later use as it is", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      await tokens.recordUses([{ name: "greenhouse", at: LATER }]);
      await tokens.recordUses([{ name: "greenhouse", at: CREATED }]);
      expect(await tokens.list()).toEqual([{ ...stored(greenhouse), lastUsedAt: LATER }]);
    });

    test("delete() frees the name, and deletes nothing that is not there", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      expect(await tokens.delete("garden")).toBe(false);
      expect(await tokens.delete("greenhouse")).toBe(true);
      expect(await tokens.delete("greenhouse")).toBe(false);
      expect(await tokens.add({ ...garden, name: "greenhouse" })).toBe(true);
      expect(await tokens.list()).toEqual([{ ...stored(garden), name: "greenhouse" }]);
    });

    test("prune() deletes what is revoked, or has expired by then", async () => {
      await using database = await open();
      const { tokens } = database;
      await tokens.add(greenhouse);
      await tokens.add(garden);
      await tokens.add({ ...garden, name: "yard", digest: new Uint8Array(32) });
      await tokens.revoke("yard", CREATED);
      expect(await tokens.prune(CREATED)).toBe(1);
      expect(await tokens.prune(LATER)).toBe(1);
      expect(await tokens.prune(LATER)).toBe(0);
      expect(await tokens.list()).toEqual([stored(garden)]);
    });

    test("revision() changes with tokens that are added, revoked and deleted, and not with uses and plants", async () => {
      await using database = await open();
      const { plants, tokens } = database;
      const revisions = [await tokens.revision()];
      await tokens.add(greenhouse);
      revisions.push(await tokens.revision());
      await tokens.revoke("greenhouse", LATER);
      revisions.push(await tokens.revision());
      await tokens.delete("greenhouse");
      revisions.push(await tokens.revision());
      await tokens.add(garden);
      revisions.push(await tokens.revision());
      await tokens.prune(CREATED);
      await tokens.delete("nobody");
      await tokens.add(garden);
      await tokens.recordUses([{ name: "garden", at: LATER }]);
      await plants.add([{ id: 1n, name: "Fern" }], { timeoutMs: 1_000 });
      expect(await tokens.revision()).toBe(revisions.at(-1) ?? "");
      expect(new Set(revisions).size).toBe(5);
    });
  });
}
