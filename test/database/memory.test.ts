import { expect, test } from "bun:test";

import { memoryDatabase } from "../../src/database/memory.ts";
import { databaseContract, testDatabaseContract } from "../support/database_contract.ts";

testDatabaseContract("memoryDatabase()", async () => memoryDatabase());

test("the contract of Database checks each of its methods", () => {
  const promises = databaseContract(async () => memoryDatabase()).map(({ name }) => name);
  const methods = Object.entries(memoryDatabase())
    .filter(([, member]) => typeof member === "function")
    .map(([name]) => `Database.${name}()`);

  expect(methods).toContain("Database.pages()");
  expect(methods.filter((method) => !promises.some((name) => name.startsWith(method)))).toEqual([]);
});
