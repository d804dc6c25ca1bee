import { afterAll, expect, setDefaultTimeout, test } from "bun:test";

import type { Database } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { openPlants } from "../../../src/database/sqlite/pages.ts";
import { openSqliteWorker } from "../../../src/database/sqlite/sqlite_adapter.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/sqlite_database.ts";
import { testDatabaseContract, testServingContract } from "../../support/database_contract.ts";
import { openWorker } from "../../support/database_fixture.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const directory = emptyDirectory(memoryDirectory());
const open = async (number: number) => sqliteDatabase(connect(`${directory.path}/${number}.db`));
let last = 0;

testDatabaseContract(
  "sqliteDatabase()",
  () => open(++last),
  () => open(last),
);

const path = `${directory.path}/plants.db`;
let worker: Worked | undefined;

afterAll(async () => {
  await worker?.[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

testDatabaseContract(
  "openSqliteWorker() and openPlants()",
  async () => readable(await emptiedWorker()),
  async () => readable(await openWorker(path)),
);

type Worked = Awaited<ReturnType<typeof openWorker>>;

/** A server reads no plants, and revokes and deletes no tokens: other connections do. */
function readable(worked: Worked): Database {
  const command = sqliteDatabase(connect(path));
  return {
    plants: worked.plants,
    tokens: { ...command.tokens, ...worked.tokens },
    async *pages() {
      await using reader = openPlants(path);
      yield* reader.pages();
    },
    async find(ids) {
      await using reader = openPlants(path);
      return await reader.find(ids);
    },
    async count() {
      await using reader = openPlants(path);
      return await reader.count();
    },
    delete: command.delete,
    async [Symbol.asyncDispose]() {
      await command[Symbol.asyncDispose]();
      await worked[Symbol.asyncDispose]();
    },
  };
}

testServingContract("openSqliteWorker()", (options) =>
  openSqliteWorker(`${directory.path}/serving.db`, options),
);

test("openSqliteWorker() reads the tokens while a plant waits for the lock of another process", async () => {
  const { plants, tokens } = await emptiedWorker();
  using other = connect(path);
  other.run("BEGIN IMMEDIATE");
  const adding = plants.add([fern()], { timeoutMs: 10 * TEST_TIMEOUT_MS });

  // Both would wait for as long, behind the plant.
  expect(await tokens.revision()).toMatch(/^\d+$/);
  expect(await tokens.list()).toEqual([]);

  other.run("ROLLBACK");
  expect(await adding).toEqual(["added"]);
});

/**
 * The database of one Worker, without what was in it: a Worker starts in more time than most of the
 * contract takes.
 */
async function emptiedWorker(): Promise<Worked> {
  worker ??= await openWorker(path);
  using client = connect(path);
  client.run("DELETE FROM plants");
  client.run("DELETE FROM tokens");
  return { ...worker, async [Symbol.asyncDispose]() {} };
}
