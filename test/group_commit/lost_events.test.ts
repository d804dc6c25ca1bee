/** No event that is lost, doubled or late keeps the queue from its next commit. */
import { expect, test } from "bun:test";

import { pause } from "../../src/async/timers.ts";
import { memoryStore } from "../../src/database/memory.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { type GroupCommit, groupCommit } from "../../src/group_commit/group_commit.ts";
import { printedSeed, randomFrom } from "../support/load.ts";
import { fern, ivy } from "../support/plants.ts";
import { promisesSettled } from "../support/promises_settled.ts";
import { range, scaled } from "../support/scale.ts";
import { type VirtualTime, virtualTime } from "../support/virtual_time.ts";

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
    const ended = await commits.add(fern({ id })).catch((error: unknown) => error);
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
    const last = await commits.add(fern({ id: 60n }));
    await promisesSettled();
    return { late, wrong, crowds, last, size: commits.size() };
  }

  return await time.until(run());
}

const { now } = performance;

/** What fake timers do to the clock, besides the timers. */
const CLOCKS: readonly (readonly [clock: string, fake: (time: VirtualTime) => void])[] = [
  ["that was behind", () => {}],
  ["that was an hour ahead", (time) => time.jump(3_600_000)],
  ["that was real", () => void (performance.now = now)],
];

/** Adds plants under fake timers, and puts those back: one plant waits for its turn. After a commit of two, the queue lingers. */
async function addUnderFake(
  commits: GroupCommit,
  plants: number,
  fake: (time: VirtualTime) => void,
) {
  using time = virtualTime();
  fake(time);
  const adds = range(1, plants).map((id) => commits.add(fern({ id })));
  const ended = Promise.allSettled(adds);
  if (plants === 2) await time.until(ended);
}

test.each(CLOCKS)(
  "fake timers that are put back, with a clock %s, cost one later plant its deadline at most",
  async (_clock, fake) => {
    for (const plants of [1, 2]) {
      const commits = groupCommit(memoryStore(), { timeoutMs: TIMEOUT_MS });
      await addUnderFake(commits, plants, fake);

      const next = commits.add(fern({ id: 3n }));
      const outcome = await next.catch(({ code, message }) => [code, message]);
      if (outcome !== "added") expect(outcome).toEqual(["storage_unavailable", NOT_STORED]);
      expect(await commits.add(fern({ id: 4n }))).toBe("added");
      await promisesSettled();
      expect(commits.size()).toBe(0);
    }
  },
);

test.each(CLOCKS)(
  "fake timers that are put back, with a clock %s, do not keep the queue full",
  async (_clock, fake) => {
    const commits = groupCommit(memoryStore(), { queueLimit: 1 });
    await addUnderFake(commits, 1, fake);

    const add = () => commits.add(fern({ id: 2n })).catch(({ code }) => code);
    let outcome = await add();
    while (outcome === "queue_full") {
      await pause(1);
      outcome = await add();
    }
    expect(outcome).toBe("added");
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

  await expect(commits.add(fern())).rejects.toBe(thrown);
  expect(commits.size()).toBe(0);
  expect(await commits.add(ivy())).toBe("added");
});

const NOT_STORED = "storage did not take the plant in time; it is not stored, send it again";
