import { expect, test } from "bun:test";

import { shardedCommit } from "../../../src/database/citus/sharded_commit.ts";
import { memoryStore } from "../../../src/database/memory.ts";
import { type GroupCommit, groupCommit } from "../../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../../src/group_commit/plant_store.ts";
import { fern, ivy } from "../../support/plants.ts";

/** A store that counts its batches. */
function countedStore() {
  const store = memoryStore();
  const sizes: number[] = [];
  const add: PlantStore["add"] = (plants, options) => {
    sizes.push(plants.length);
    return store.add(plants, options);
  };
  return { sizes, store: { ...store, add } };
}

const HANGING: PlantStore = { add: () => new Promise(() => {}), probe: async () => {} };

/** Even ids are kept by the first store, odd ones by the second. */
function commitsOver(even: PlantStore, odd: PlantStore) {
  return shardedCommit(({ id }) => (id % 2n === 0n ? even : odd), groupCommit);
}

test("each store gets its own plants, in batches of its own", async () => {
  const even = countedStore();
  const odd = countedStore();
  const commits = commitsOver(even.store, odd.store);
  const ids = [1n, 2n, 3n, 4n, 6n];

  await Promise.all(ids.map((id) => commits.add(fern({ id }))));

  expect([even.sizes, odd.sizes]).toEqual([[3], [2]]);
});

test("a store that hangs holds up its own plants only", async () => {
  const commits = commitsOver(HANGING, memoryStore());
  const held = commits.add(fern({ id: 2n }));

  expect(await commits.add(fern())).toBe("added");
  const draining = commits.drain(20);
  await expect(held).rejects.toMatchObject({ code: "storage_unavailable" });
  await draining;
});

test("a plant goes to the store that keeps it now", async () => {
  const [old, next] = [countedStore(), countedStore()];
  let store = old.store;
  const commits = shardedCommit(() => store, groupCommit);
  await commits.add(fern());

  store = next.store;
  await commits.add(fern({ id: 2n }));

  expect([old.sizes, next.sizes]).toEqual([[1], [1]]);
});

test("the queue is as full as the fullest of its parts, where a plant is refused first", async () => {
  const queues = [HANGING, HANGING].map((store) =>
    groupCommit(store, { queueLimit: 4, timeoutMs: 50 }),
  );
  const commits = shardedCommit(
    ({ id }) => Number(id % 2n),
    (part) => queues[part] as GroupCommit,
  );
  expect(commits.fill()).toBe(0);

  const held = [1n, 2n, 3n, 5n].map((id) => commits.add(fern({ id })));
  expect([commits.size(), commits.fill()]).toEqual([4, 0.75]);
  await Promise.allSettled(held);
});

test("drain() waits for the plants of every store, and refuses what comes later, even for a new store", async () => {
  const commits = shardedCommit(({ id }) => (id === 1n ? HANGING : memoryStore()), groupCommit);
  const held = commits.add(fern());

  expect([commits.size(), commits.fill()]).toEqual([1, 1 / 10_000]);
  const draining = commits.drain(20);
  for (const id of [1n, 2n])
    await expect(commits.add(ivy({ id }))).rejects.toMatchObject({ code: "shutting_down" });

  await expect(held).rejects.toMatchObject({ code: "storage_unavailable" });
  await draining;
});
