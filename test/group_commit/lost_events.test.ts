/** No event that is lost, doubled or late keeps the queue from its next commit. */
import { expect, test } from "bun:test";

import { memoryStore } from "../../src/database/memory.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { virtualTime } from "../simulation/virtual_time.ts";
import { printedSeed, randomFrom } from "../support/load.ts";
import { promisesSettled } from "../support/promises_settled.ts";
import { range, scaled } from "../support/scale.ts";

const TIMEOUT_MS = 100;
const MAX_IN_FLIGHT = 3;

test("a `defer` that loses, doubles, delays or throws makes no plant late, and the next one is stored", async () => {
  const first = printedSeed("lost turns") % 1_000_000_000;
  for (const seed of range(first, first + scaled(50, 3_000) - 1))
    expect({ seed, ...(await simulate(seed)) }).toEqual({
      seed,
      late: 0,
      wrong: 0,
      crowds: 0,
      last: "added",
      size: 0,
    });
});

/** Adds plants to a queue whose turns go wrong as the seed has it, and one more when all is well. */
async function simulate(seed: number) {
  using time = virtualTime();
  const random = randomFrom(seed);
  let isFaulty = true;
  let inFlight = 0;
  /** How often more batches were in flight than may be. */
  let crowds = 0;
  const store = memoryStore();

  const commits = groupCommit(
    {
      ...store,
      async add(plants, options) {
        if (++inFlight > MAX_IN_FLIGHT) crowds++;
        await time.sleep(isFaulty && random() < 0.1 ? 300 : random() * 10);
        inFlight--;
        return store.add(plants, options);
      },
    },
    {
      timeoutMs: TIMEOUT_MS,
      maxInFlight: MAX_IN_FLIGHT,
      defer(run) {
        const kind = isFaulty ? Math.floor(random() * 6) : 5;
        if (kind === 0) throw new Error("thrown");
        if (kind === 1) return;
        if (kind === 2) run();
        if (kind === 3) setTimeout(run, random() * 300);
        setTimeout(run, 0);
      },
    },
  );

  let late = 0;
  let wrong = 0;
  async function add(id: bigint): Promise<void> {
    const began = time.now();
    const ended = await commits.add({ id, name: "Fern" }).catch((error: unknown) => error);
    if (time.now() - began > TIMEOUT_MS + 1) late++;
    const isUnavailable = ended instanceof PlantStoreError && ended.code === "storage_unavailable";
    const isThrown = ended instanceof Error && ended.message === "thrown";
    if (ended !== "added" && !isUnavailable && !isThrown) wrong++;
  }

  async function run() {
    const adds: Promise<void>[] = [];
    for (let id = 0n; id < 60n; id++) {
      await time.sleep(random() ** 3 * 60);
      adds.push(add(id));
    }
    await Promise.all(adds);
    await time.sleep(1_000);

    isFaulty = false;
    const last = await commits.add({ id: 60n, name: "Fern" });
    await promisesSettled();
    return { late, wrong, crowds, last, size: commits.size() };
  }

  return await time.until(run());
}

test.each<[clock: string, aheadMs: number]>([
  ["that was behind", 0],
  ["an hour ahead", 3_600_000],
])(
  "fake timers that are put back, with a clock %s, cost one later plant its deadline at most",
  async (_clock, aheadMs) => {
    for (const plants of [1, 2]) {
      const commits = groupCommit(memoryStore(), { timeoutMs: TIMEOUT_MS });
      {
        using time = virtualTime();
        time.jump(aheadMs);
        // One waits for its turn. After a commit of two, the queue lingers.
        const adds = range(1, plants).map((id) => commits.add({ id: BigInt(id), name: "Fern" }));
        const ended = Promise.allSettled(adds);
        if (plants === 2) await time.until(ended);
      }

      const next = commits.add({ id: 3n, name: "Moss" });
      const outcome = await next.catch(({ code, message }) => [code, message]);
      if (outcome !== "added") expect(outcome).toEqual(["storage_unavailable", NOT_STORED]);
      expect(await commits.add({ id: 4n, name: "Ivy" })).toBe("added");
      await promisesSettled();
      expect(commits.size()).toBe(0);
    }
  },
);

test("a `defer` that throws fails the plants of its turn with its own error, and no later one", async () => {
  const thrown = new Error("no turns here");
  let calls = 0;
  const defer = (run: () => void) => {
    if (calls++ === 0) throw thrown;
    setImmediate(run);
  };
  const commits = groupCommit(memoryStore(), { defer });

  await expect(commits.add({ id: 1n, name: "Fern" })).rejects.toBe(thrown);
  expect(commits.size()).toBe(0);
  expect(await commits.add({ id: 1n, name: "Ivy" })).toBe("added");
});

const NOT_STORED = "storage did not take the plant in time; it is not stored, send it again";
