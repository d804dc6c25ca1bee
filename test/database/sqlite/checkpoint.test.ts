import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { openSqliteWorker } from "../../../src/database/sqlite/worker_client.ts";
import type { Database } from "../../../src/database/database.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What the README promises, in bytes; a checkpoint is tried from half of it on. */
const WAL_BOUND = 128 * 2 ** 20;

test("two servers that write to one file at once keep its WAL within the bound", async () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  await using one = await openSqliteWorker(path);
  await using other = await openSqliteWorker(path);
  const batches = 120;
  const sizes = (await Promise.all([one, other].map((database) => addBatches(database, path, batches)))).flat();
  expect(sizes.length).toBe(2 * batches);
  expect(Math.max(...sizes)).toBeLessThan(WAL_BOUND);
});

test("asking whether it is ready does not grow the WAL without end", async () => {
  using directory = emptyDirectory(memoryDirectory());
  const path = join(directory.path, "plants.db");
  await using database = await openSqliteWorker(path);
  // One page each: more than a checkpoint moves at once.
  for (let probes = 0; probes < 5_500; probes++) await database.plants.probe();
  expect(statSync(`${path}-wal`).size).toBeLessThan(20 * 2 ** 20);
});

/** Adds plants under random ids, which change a page each, and resolves to the size of the WAL after each batch. */
async function addBatches({ plants }: Database, path: string, count: number): Promise<number[]> {
  const sizes: number[] = [];
  while (sizes.length < count) {
    await plants.add(Array.from({ length: 64 }, largePlant), { timeoutMs: TEST_TIMEOUT_MS });
    sizes.push(statSync(`${path}-wal`).size);
  }
  return sizes;
}

function largePlant() {
  const [id = 0n] = crypto.getRandomValues(new BigInt64Array(1));
  return { id, name: "x".repeat(3_000) };
}
