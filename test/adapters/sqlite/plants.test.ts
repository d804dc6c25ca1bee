import { openDatabase } from "../../../src/adapters/sqlite/connection.ts";
import { openSqlite } from "../../../src/adapters/sqlite/worker_client.ts";
import { sqliteStore } from "../../../src/adapters/sqlite/plants.ts";
import type { PlantStore } from "../../../src/plant_store.ts";
import { emptyDirectory } from "../../support/program.ts";
import { storeContract } from "../../support/store_contract.ts";

storeContract("sqliteStore()", () => inDirectory(async (path) => sqliteStore(openDatabase(path))));

storeContract("openSqlite()", () =>
  inDirectory(async (path) => {
    const onBroken = (error: Error) => {
      throw error;
    };
    return (await openSqlite(path, { onBroken })).plants;
  }),
);

/** A store whose file is gone when it is closed. */
async function inDirectory(open: (path: string) => Promise<PlantStore>): Promise<PlantStore> {
  const directory = emptyDirectory();
  const store = await open(`${directory.path}/plants.db`);
  return {
    add: store.add,
    probe: store.probe,
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
}
