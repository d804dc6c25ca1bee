import { openDatabase } from "../../../src/adapters/sqlite/database.ts";
import { sqliteStore } from "../../../src/adapters/sqlite/store.ts";
import { storeContract } from "../../support/store_contract.ts";
import { emptyDirectory } from "../../support/program.ts";

storeContract("sqliteStore()", () => {
  const directory = emptyDirectory();
  const store = sqliteStore(openDatabase(`${directory.path}/plants.db`));
  return {
    ...store,
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
});
