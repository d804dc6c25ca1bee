import { expect, test } from "bun:test";

import { semaphore } from "../../src/async/semaphore.ts";

test("semaphore() runs as many tasks at once as there are permits, first come, first served, whether they fail or not", async () => {
  const running: number[] = [];
  const ends = Array.from({ length: 6 }, () => Promise.withResolvers<void>());
  const withPermit = semaphore(2);
  const run = (id: number) =>
    withPermit(async () => {
      running.push(id);
      await ends[id]?.promise.finally(() => running.splice(running.indexOf(id), 1));
      return id;
    });
  const results = [0, 1, 2, 3].map(run);
  expect(running).toEqual([0, 1]);

  ends[1]?.reject("out of order");
  await expect(results[1]).rejects.toBe("out of order");
  expect(running).toEqual([0, 2]);

  ends[0]?.resolve();
  expect(await results[0]).toBe(0);

  results.push(run(4));
  expect(running).toEqual([2, 3]);

  for (const { resolve } of ends) resolve();
  expect(await Promise.all(results.slice(2))).toEqual([2, 3, 4]);

  // The permits are free again.
  void run(5);
  expect(running).toEqual([5]);
});
