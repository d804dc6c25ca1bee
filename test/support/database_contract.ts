import { describe, expect, test } from "bun:test";

import type { ServingDatabase, ServingOptions } from "../../src/database/adapter.ts";
import {
  databaseContract,
  type OpenDatabase,
} from "../../src/database/contract/database_contract.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";

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
  const gather = (...[store, maxInFlight]: Parameters<ServingOptions["gather"]>) =>
    groupCommit(store, { maxInFlight });

  test(`${adapter} keeps the contract of ServingDatabase`, async () => {
    await using database = await open({ gather });

    expect(await database.ready()).toEqual([]);
    const fern = { id: 7n, name: "Fern" };
    expect(await database.plants.add(fern)).toBe("added");
    expect(await database.plants.add(fern)).toBe("present");
    expect(await database.tokens.list()).toEqual([]);

    for (const { name, type, value } of database.metrics()) {
      expect(name).toMatch(/^[a-z][a-z0-9_]*$/);
      expect([name, type]).toEqual([name, name.endsWith("_total") ? "counter" : "gauge"]);
      expect([name, Number.isFinite(value)]).toEqual([name, true]);
    }
    expect(await Promise.race([database.failed, "pending"])).toBe("pending");

    await database.plants.drain(1_000);
    await expect(database.plants.add(fern)).rejects.toMatchObject({ code: "shutting_down" });
  });
}
