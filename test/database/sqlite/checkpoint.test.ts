import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync } from "node:fs";

import type { Database } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { type Checkpoint, nextCheckpoint } from "../../../src/database/sqlite/checkpoint.ts";
import { openWorker } from "../../support/database_fixture.ts";
import { fern, TEXT } from "../../support/plants.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What the README promises, in bytes; a checkpoint is tried from half of it on. */
const WAL_BOUND = 128 * 2 ** 20;

test.each<
  [
    what: string,
    next: Checkpoint,
    pages: number,
    left: number,
    last?: [background: number, inline: number, blocking: number],
  ]
>([
  ["an empty WAL", "none", 0, 0],
  ["fewer pages than a pass is worth", "none", 1_000, 1_000],
  ["enough pages for a pass", "background", 1_001, 1_001],
  ["fewer than that since the last pass", "none", 2_000, 1_000, [1_001, 0, 0]],
  ["enough since the last pass", "background", 2_002, 1_001, [1_001, 0, 0]],
  ["many that a reader blocks, just tried", "none", 3_000, 3_000, [2_002, 0, 0]],
  ["few left, long before the WAL is to begin anew", "none", 3_999, 10, [3_900, 0, 0]],
  ["few left when the WAL is to begin anew", "inline", 4_000, 200, [3_900, 0, 0]],
  ["too many left for the writer", "background", 4_100, 201, [3_890, 0, 0]],
  ["too many left, just tried", "none", 4_100, 201, [3_900, 0, 0]],
  ["an inline one that a reader has blocked", "none", 4_900, 10, [4_800, 4_000, 0]],
  ["that one a thousand pages later", "inline", 5_000, 10, [4_800, 4_000, 0]],
  [
    "a WAL that another process keeps from beginning anew",
    "blocking",
    16_000,
    900,
    [15_900, 15_500, 0],
  ],
  ["a blocking one that a reader has blocked", "none", 19_999, 200, [19_900, 19_900, 16_000]],
  ["that one 4,000 pages later", "blocking", 20_000, 20_000, [19_900, 19_900, 16_000]],
])("%s: %s", (_, next, pages, left, [background, inline, blocking] = [0, 0, 0]) => {
  expect(nextCheckpoint(pages, left, { background, inline, blocking })).toBe(next);
});

test("two servers that write to one file at once keep its WAL within the bound", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  await using one = await openWorker(path);
  await using other = await openWorker(path);
  const batches = 120;
  const sizes = (
    await Promise.all([one, other].map((database) => addBatches(database, path, batches)))
  ).flat();

  expect(sizes.length).toBe(2 * batches);
  expect(Math.max(...sizes)).toBeLessThan(WAL_BOUND);
});

test("asking whether it is ready does not grow the WAL without end", async () => {
  using directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");
  await using database = await openWorker(path);
  const held = () =>
    database.metrics().find(({ name }) => name === "plant_store_wal_bytes")?.value ?? 0;

  // One page each, until the WAL has begun anew. A pass may be late on a busy machine: from 65 MB on
  // the writer begins it anew by itself.
  let before = 0;
  while (held() >= before) {
    before = held();
    await database.plants.probe();
    expect(statSync(`${path}-wal`).size).toBeLessThan(80 * 2 ** 20);
  }
});

test("the file of a WAL that a reader has kept is cut once the reader is gone, and the metric is what the WAL holds", async () => {
  using directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");
  await using database = await openWorker(path);
  const held = () =>
    database.metrics().find(({ name }) => name === "plant_store_wal_bytes")?.value ?? 0;

  {
    using reader = connect(path, { access: "read" });
    reader.run("BEGIN");
    reader.query("SELECT count(*) FROM plants").get();
    // The metric is of the last look, and none is taken during a checkpoint pass.
    while (held() < 60 * 2 ** 20) await addBatches(database, path, 10);
  }

  // The checkpoint that a reader has blocked is tried again a thousand pages later. The metric is as
  // old as the last look: each bound is waited for.
  const end = performance.now() + TEST_TIMEOUT_MS / 2;
  const fileBytes = () => statSync(`${path}-wal`).size;
  const isCut = () => held() < 20 * 2 ** 20 && fileBytes() < 34 * 2 ** 20;
  while (!isCut() && performance.now() < end) await addBatches(database, path, 10);
  expect(held()).toBeLessThan(20 * 2 ** 20);
  expect(fileBytes()).toBeLessThan(34 * 2 ** 20);
  while (held() === 0 && performance.now() < end) await addBatches(database, path, 1);
  expect(held()).toBeGreaterThan(0);
});

/**
 * Adds plants under random ids, which change a page each, and resolves to the size of the WAL after
 * each batch.
 */
async function addBatches(
  { plants }: Pick<Database, "plants">,
  path: string,
  count: number,
): Promise<number[]> {
  const sizes: number[] = [];
  while (sizes.length < count) {
    await plants.add(Array.from({ length: 64 }, largePlant), { timeoutMs: TEST_TIMEOUT_MS });
    sizes.push(statSync(`${path}-wal`).size);
  }
  return sizes;
}

function largePlant() {
  const [id = 0n] = crypto.getRandomValues(new BigInt64Array(1));
  return fern({ id, [TEXT]: "x".repeat(3_000) });
}
