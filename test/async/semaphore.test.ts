import { expect, test } from "bun:test";
import { semaphore } from "../../src/async/semaphore.ts";

/** Tasks that run until they are told to end, and what is running. */
function tasks() {
  const running: number[] = [];
  const ends = new Map<number, PromiseWithResolvers<number>>();
  const task = (id: number) => () => {
    running.push(id);
    const end = Promise.withResolvers<number>();
    ends.set(id, end);
    return end.promise.finally(() => running.splice(running.indexOf(id), 1));
  };
  return {
    running,
    task,
    end: (id: number) => ends.get(id)?.resolve(id),
    fail: (id: number) => ends.get(id)?.reject(id),
  };
}

test("semaphore() runs as many tasks at once as there are permits, first come, first served", async () => {
  const { running, task, end } = tasks();
  const withPermit = semaphore(2);
  const results = [1, 2, 3, 4].map((id) => withPermit(task(id)));
  expect(running).toEqual([1, 2]);
  end(2);
  await results[1];
  expect(running).toEqual([1, 3]);
  end(1);
  await results[0];
  results.push(withPermit(task(5)));
  expect(running).toEqual([3, 4]);
  end(3);
  await results[2];
  end(4);
  end(5);
  expect(await Promise.all(results)).toEqual([1, 2, 3, 4, 5]);
  expect(running).toEqual([]);
});

test("semaphore() gives the permit of a task that failed to the next one", async () => {
  const { running, task, end, fail } = tasks();
  const withPermit = semaphore(1);
  const [first, second] = [withPermit(task(1)), withPermit(task(2))];
  fail(1);
  await expect(first).rejects.toBe(1);
  expect(running).toEqual([2]);
  end(2);
  expect(await second).toBe(2);
  const third = withPermit(task(3));
  expect(running).toEqual([3]);
  end(3);
  expect(await third).toBe(3);
});
