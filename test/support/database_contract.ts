import { describe, test } from "bun:test";

import {
  databaseContract,
  type OpenDatabase,
} from "../../src/database/contract/database_contract.ts";

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
