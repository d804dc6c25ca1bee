import { describe, test } from "bun:test";
import { databaseContract, type OpenDatabase } from "../../src/database/contract/mod.ts";

/** Holds an adapter to the comments of the ports. `open` gives a new, empty database. */
export function testDatabaseContract(adapter: string, open: OpenDatabase): void {
  describe(`${adapter} keeps the contract of Database`, () => {
    for (const { name, run } of databaseContract(open)) test(name, run);
  });
}
