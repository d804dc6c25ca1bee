import { connect } from "../../../src/adapters/sqlite/connection.ts";
import { sqliteDatabase } from "../../../src/adapters/sqlite/database.ts";
import { openSqliteWorker } from "../../../src/adapters/sqlite/worker_client.ts";
import type { Database } from "../../../src/database.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { emptyDirectory, memoryDirectory } from "../../support/program.ts";

testDatabaseContract("sqliteDatabase()", () => inDirectory(async (path) => sqliteDatabase(connect(path))));

testDatabaseContract("openSqliteWorker()", () => inDirectory(openSqliteWorker));

/** A database whose file is gone when it is closed. */
async function inDirectory(open: (path: string) => Promise<Database>): Promise<Database> {
  const directory = emptyDirectory(memoryDirectory());
  const database = await open(`${directory.path}/plants.db`);
  return {
    ...database,
    async [Symbol.asyncDispose]() {
      await database[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
}
