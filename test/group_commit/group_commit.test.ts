import { Database } from "bun:sqlite";
import { afterEach, beforeEach, describe, expect, jest, setDefaultTimeout, spyOn, test } from "bun:test";
import { memoryStore } from "../../src/database/memory.ts";
import { openSqliteWorker } from "../../src/database/sqlite/worker_client.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { type GroupCommitOptions, groupCommit } from "../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import type { AddOutcome, StoreOutcome } from "../../src/database/plant_store.ts";
import { postPlant, testApp } from "../support/app.ts";
import { deferredStore, manualTurns, promisesSettled } from "../support/deferred_store.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const [FERN, MOSS, IVY] = [plant(1), plant(2), plant(3)];

describe("with a deferred store, manual turns and fake timers", () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  // Batches

  test("a lone plant does not wait for others: it is flushed after one turn", async () => {
    const { commits, batches, turn } = deferred();
    void commits.add(FERN);
    expect(batches).toHaveLength(0);
    await turn();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN]]);
  });

  test("add() resolves when the store has committed, and not before", async () => {
    const { commits, batches, run } = deferred();
    const added = tracked(commits.add(FERN));
    await run();
    expect(added.settled).toBe(false);
    batches[0]?.end(["added"]);
    await run();
    expect(added.settled).toBe(true);
    expect(await added.promise).toBe("added");
  });

  test("plants added at once are flushed in one batch, in the order of arrival", async () => {
    const { commits, batches, run } = deferred();
    for (const one of [IVY, FERN, MOSS, FERN]) void commits.add(one);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[IVY, FERN, MOSS, FERN]]);
  });

  test("a batch has a megabyte of text, or one plant; what is more has batches and outcomes of its own", async () => {
    const { commits, batches, run } = deferred({ lanes: 2 });
    const plants = [600_000, 400_000, 60_000, 2_000_000, 1].map((length, id) => ({
      id: BigInt(id),
      name: "x".repeat(length - 1),
      tag: "x",
    }));
    const outcomes = Promise.allSettled(plants.map((one) => commits.add(one)));
    await run();
    jest.advanceTimersByTime(3);
    await run();
    expect(batches).toHaveLength(2);
    batches[0]?.end(["added", "added"]);
    for (let ended = 1; ended < 4; ended++) {
      await run();
      jest.advanceTimersByTime(3);
      await run();
      if (ended === 1) batches[1]?.fail(new PlantStoreError("storage_unavailable"));
      else batches[ended]?.end(["added"]);
    }
    expect(batches.map(({ plants: batch }) => batch.map(({ id }) => Number(id)))).toEqual([[0, 1], [2], [3], [4]]);
    const statuses = (await outcomes).map(({ status }) => status);
    expect(statuses).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled", "fulfilled"]);
  });

  test("a batch that still grows gathers on, but not for ever", async () => {
    const { commits, batches, turn } = deferred();
    let added = 0;
    void commits.add(plant(added++));
    while (batches.length === 0 && added < 1_000) {
      void commits.add(plant(added++));
      await turn();
    }
    expect(batches[0]?.plants.length).toBe(added);
    expect(added).toBeLessThan(1_000);
  });

  test("while one batch is in flight the next one gathers, and is flushed only after it", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    await run();
    void commits.add(IVY);
    await run();
    expect(batches).toHaveLength(1);
    batches[0]?.end(["added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS, IVY]]);
  });

  test("every add() gets its own plant's outcome, and one plant's conflict fails no neighbour", async () => {
    const { commits, batches, run } = deferred();
    const outcomes = Promise.all([FERN, MOSS, IVY, FERN].map((one) => commits.add(one)));
    await run();
    batches[0]?.end(["added", "conflict", "present", "added"]);
    expect(await outcomes).toEqual(["added", "conflict", "present", "added"]);
  });

  test("nothing is flushed when nothing is pending", async () => {
    const { commits, batches, run, waiting } = deferred();
    void commits.add(FERN);
    await run();
    batches[0]?.end(["added"]);
    await run();
    expect(batches).toHaveLength(1);
    expect(waiting()).toBe(0);
  });

  // Plants that other transactions hold

  test("a plant that is locked is tried again until it has an outcome, apart from all others", async () => {
    const { commits, batches, run } = deferred();
    const outcomes = [FERN, MOSS, IVY].map((one) => tracked(commits.add(one)));
    await run();
    batches[0]?.end(["added", "locked", "conflict"]);
    await run();
    expect(outcomes.map(({ settled }) => settled)).toEqual([true, false, true]);
    expect(commits.size()).toBe(1);
    const other = commits.add(plant(4));
    jest.advanceTimersByTime(1);
    await run();
    batches[1]?.end(["added"]);
    expect(await other).toBe("added");
    await endRetries({ batches, run }, 2, ["locked", "present"]);
    expect(batches.slice(2).map(({ plants }) => plants)).toEqual([[MOSS], [MOSS]]);
    expect(await outcomes[1]?.promise).toBe("present");
    expect(commits.size()).toBe(0);
    jest.advanceTimersByTime(1_000);
    expect(batches).toHaveLength(4);
  });

  test("plants that are locked are tried again together, in the order of their deadlines, one batch at a time", async () => {
    const { commits, batches, run } = deferred({ lanes: 2, timeoutMs: 1_000 });
    const outcomes = [tracked(commits.add(FERN))];
    await run();
    jest.advanceTimersByTime(10);
    outcomes.push(tracked(commits.add(MOSS)));
    await run();
    batches[1]?.end(["locked"]);
    batches[0]?.end(["locked"]);
    await run();
    jest.advanceTimersByTime(100);
    await run();
    expect(batches[2]).toMatchObject({ plants: [FERN, MOSS], timeoutMs: 900 });
    outcomes.push(tracked(commits.add(IVY)));
    await run();
    batches[3]?.end(["locked"]);
    await run();
    jest.advanceTimersByTime(500);
    await run();
    expect(batches).toHaveLength(4);
    batches[2]?.end(["added", "conflict"]);
    await run();
    jest.advanceTimersByTime(100);
    await run();
    expect(batches[4]?.plants).toEqual([IVY]);
    batches[4]?.end(["added"]);
    expect(await Promise.all(outcomes.map(({ promise }) => promise))).toEqual(["added", "conflict", "added"]);
  });

  test("a plant that stays locked is rejected at its deadline, and tried no more", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 1_000 });
    const error = rejection(commits.add(FERN));
    await run();
    batches[0]?.end(["locked"]);
    await run();
    jest.advanceTimersByTime(100);
    await run();
    batches[1]?.end(["locked"]);
    await run();
    for (let number = 2; commits.size() > 0; number++) {
      jest.advanceTimersByTime(100);
      await run();
      batches[number]?.end(["locked"]);
      await run();
    }
    expect(await error).toMatchObject({
      code: "storage_unavailable",
      message: "storage did not finish in time; the plant may or may not be stored, send it again",
    });
    const tries = batches.length;
    expect(jest.getTimerCount()).toBe(0);
    jest.advanceTimersByTime(5_000);
    await run();
    expect(batches).toHaveLength(tries);
  });

  test("a plant that is locked keeps its own deadline among those of others", async () => {
    const { commits, batches, run } = deferred({ lanes: 3, timeoutMs: 1_000 });
    const adds = [];
    for (const one of [FERN, MOSS, IVY]) {
      adds.push(tracked(commits.add(one)));
      await run();
      jest.advanceTimersByTime(100);
      await run();
      if (one === MOSS) batches[1]?.end(["locked"]);
      await run();
    }
    adds.forEach(({ promise }) => promise.catch(() => {}));
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS], [IVY], [MOSS]]);
    jest.advanceTimersByTime(700);
    await run();
    expect(adds.map(({ settled }) => settled)).toEqual([true, false, false]);
    jest.advanceTimersByTime(100);
    await run();
    expect(adds.map(({ settled }) => settled)).toEqual([true, true, false]);
  });

  test("a plant whose deadline comes before its next try is rejected at its deadline", async () => {
    const { commits, batches, run } = deferred({ lanes: 2, timeoutMs: 1_000 });
    const adds = [tracked(commits.add(FERN))];
    await run();
    jest.advanceTimersByTime(50);
    adds.push(tracked(commits.add(MOSS)));
    adds.forEach(({ promise }) => promise.catch(() => {}));
    await run();
    jest.advanceTimersByTime(910);
    batches[1]?.end(["locked"]);
    await run();
    jest.advanceTimersByTime(89);
    await run();
    expect(adds.map(({ settled }) => settled)).toEqual([true, false]);
    jest.advanceTimersByTime(1);
    await run();
    expect(adds.map(({ settled }) => settled)).toEqual([true, true]);
    expect(batches).toHaveLength(2);
  });

  test("while plants are tried again no more batches of others are in flight than there are lanes", async () => {
    const { commits, batches, run } = deferred();
    const adds = [commits.add(FERN)];
    await run();
    batches[0]?.end(["locked"]);
    await run();
    adds.push(commits.add(MOSS));
    await run();
    jest.advanceTimersByTime(100);
    await run();
    adds.push(commits.add(IVY));
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS], [FERN]]);
    batches[1]?.end(["added"]);
    batches[2]?.end(["added"]);
    await run();
    batches[3]?.end(["added"]);
    expect(await Promise.all(adds)).toEqual(["added", "added", "added"]);
  });

  test("a plant that is found locked after its deadline is tried no more", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 1_000 });
    const error = rejection(commits.add(FERN));
    await run();
    jest.advanceTimersByTime(1_000);
    await run();
    expect(await error).toMatchObject({ code: "storage_unavailable" });
    batches[0]?.end(["locked"]);
    await run();
    expect(commits.size()).toBe(0);
    jest.advanceTimersByTime(1_000);
    await run();
    expect(batches).toHaveLength(1);
  });

  test("drain() waits for plants that are locked, and rejects them when its time is over", async () => {
    for (const isLocked of [false, true]) {
      const { commits, batches, run } = deferred({ timeoutMs: 5_000 });
      const outcome = tracked(commits.add(FERN).catch(({ code }) => code));
      await run();
      batches[0]?.end(["locked"]);
      await run();
      const drained = tracked(commits.drain(1_000));
      jest.advanceTimersByTime(100);
      await run();
      expect([outcome.settled, drained.settled]).toEqual([false, false]);
      if (isLocked) jest.advanceTimersByTime(900);
      batches[1]?.end([isLocked ? "locked" : "added"]);
      await run();
      await drained.promise;
      expect(await outcome.promise).toBe(isLocked ? "storage_unavailable" : "added");
      jest.advanceTimersByTime(1_000);
      await run();
      expect(batches).toHaveLength(2);
      expect(commits.size()).toBe(0);
    }
  });

  test("drain() resolves as soon as the deadline of the last plant is over, which waits for its next try", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 1_000 });
    const error = rejection(commits.add(FERN));
    await run();
    jest.advanceTimersByTime(950);
    batches[0]?.end(["locked"]);
    await run();
    const drained = tracked(commits.drain(60_000));
    jest.advanceTimersByTime(50);
    await run();
    expect(await error).toMatchObject({ code: "storage_unavailable" });
    expect(drained.settled).toBe(true);
  });

  test("onCommit is told of outcomes only, and of no commit where every plant is locked", async () => {
    const onCommit = jest.fn();
    const { commits, batches, run } = deferred({ onCommit });
    const added = [FERN, MOSS].map((one) => commits.add(one));
    await run();
    batches[0]?.end(["locked", "added"]);
    await run();
    expect(onCommit.mock.calls).toMatchObject([[{ outcomes: ["added"] }]]);
    await endRetries({ batches, run }, 1, ["locked", "present"]);
    expect(await Promise.all(added)).toEqual(["present", "added"]);
    expect(onCommit.mock.calls).toMatchObject([[{ outcomes: ["added"] }], [{ outcomes: ["present"] }]]);
  });

  // Lanes

  test("with several lanes, a plant that comes while a batch is in flight takes a free one, three milliseconds after", async () => {
    const { commits, batches, run } = deferred({ lanes: 2 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    jest.advanceTimersByTime(2);
    await run();
    expect(batches).toHaveLength(1);
    jest.advanceTimersByTime(1);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS]]);
  });

  test("with several lanes, no more batches are in flight than there are lanes", async () => {
    const { commits, batches, run } = deferred({ lanes: 2 });
    for (const one of [FERN, MOSS, IVY]) {
      void commits.add(one);
      await run();
      jest.advanceTimersByTime(3);
      await run();
    }
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS]]);
    expect(commits.size()).toBe(3);
    batches[1]?.end(["added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS], [IVY]]);
    expect(commits.size()).toBe(2);
  });

  test("with several lanes, a fast commit takes with the next batch what came meanwhile", async () => {
    const { commits, batches, run } = deferred({ lanes: 4 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    await run();
    batches[0]?.end(["added"]);
    void commits.add(IVY);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS, IVY]]);
  });

  test("with several lanes, drain() resolves once the last of the batches is back", async () => {
    const { commits, batches, run } = deferred({ lanes: 2 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    jest.advanceTimersByTime(3);
    await run();
    const drained = tracked(commits.drain(60_000));
    batches[1]?.end(["added"]);
    await run();
    expect(drained.settled).toBe(false);
    batches[0]?.end(["added"]);
    await drained.promise;
  });

  test("with several lanes, every plant in flight has its own deadline", async () => {
    const { commits, batches, run } = deferred({ lanes: 2, timeoutMs: 100 });
    const first = rejection(commits.add(FERN));
    await run();
    jest.advanceTimersByTime(50);
    const second = rejection(commits.add(MOSS));
    await run();
    expect(batches).toHaveLength(2);
    jest.advanceTimersByTime(50);
    expect(await first).toMatchObject({ code: "storage_unavailable" });
    const late = tracked(second);
    await run();
    expect(late.settled).toBe(false);
    jest.advanceTimersByTime(50);
    expect(await second).toMatchObject({
      code: "storage_unavailable",
      message: "storage did not finish in time; the plant may or may not be stored, send it again",
    });
  });

  // Lingering

  test.each([
    ["some are", [IVY]],
    ["none are", []],
  ] as const)(
    "after a commit of several, the next batch lingers for as many more than are pending, where %s",
    async (_, pending) => {
      const { commits, batches, run } = deferred();
      void commits.add(FERN);
      void commits.add(MOSS);
      await run();
      for (const one of pending) void commits.add(one);
      batches[0]?.end(["added", "added"]);
      await run();
      void commits.add(FERN);
      await run();
      expect(batches).toHaveLength(1);
      void commits.add(MOSS);
      await run();
      expect(batches.map(({ plants }) => plants)).toEqual([
        [FERN, MOSS],
        [...pending, FERN, MOSS],
      ]);
    },
  );

  test("after a commit of several, the next batch lingers for a millisecond at most", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    void commits.add(MOSS);
    await run();
    void commits.add(IVY);
    batches[0]?.end(["added", "added"]);
    await run();
    jest.advanceTimersByTime(1);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN, MOSS], [IVY]]);
  });

  test("a batch that is full before its linger time ends is alone in flight", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    void commits.add(MOSS);
    await run();
    void commits.add(IVY);
    batches[0]?.end(["added", "added"]);
    await run();
    void commits.add(FERN);
    void commits.add(MOSS);
    void commits.add(IVY);
    jest.advanceTimersByTime(10);
    await run();
    expect(batches.map(({ plants }) => plants.length)).toEqual([2, 3]);
  });

  test("after a commit of one, the next batch does not linger", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    batches[0]?.end(["added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN], [MOSS]]);
  });

  test("when nobody sends again, nothing is flushed, and a plant that comes later does not wait", async () => {
    const { commits, batches, run } = deferred();
    await commitTwo({ commits, batches, run });
    jest.advanceTimersByTime(1);
    await run();
    expect(batches).toHaveLength(1);
    expect(jest.getTimerCount()).toBe(0);
    void commits.add(IVY);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN, MOSS], [IVY]]);
  });

  test("each four batches in a row that were complete let the next one linger a millisecond longer, for three at most", async () => {
    for (const [complete, expectedMs] of [
      [0, 1],
      [3, 1],
      [4, 2],
      [7, 2],
      [8, 3],
      [40, 3],
    ] as const) {
      const group = deferred();
      await commitTwo(group);
      for (let count = 0; count < complete; count++) await commitTwo(group);
      expect([complete, await lingerMs(group)]).toEqual([complete, expectedMs]);
    }
  });

  test("after a batch that was not complete, the next one lingers for a millisecond again", async () => {
    const group = deferred();
    for (let count = 0; count < 9; count++) await commitTwo(group);
    expect(await lingerMs(group)).toBe(3);
    await commitTwo(group);
    expect(await lingerMs(group)).toBe(1);
  });

  test("a plant that is locked sends nothing again: the next batch does not linger for it", async () => {
    const { commits, batches, run } = deferred();
    commits.add(FERN).catch(() => {});
    void commits.add(MOSS);
    await run();
    batches[0]?.end(["locked", "added"]);
    await run();
    void commits.add(IVY);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN, MOSS], [IVY]]);
  });

  test("with several lanes, a batch that is back during a linger makes it wait for more plants, and no longer", async () => {
    const group = deferred({ lanes: 2 });
    const { commits, batches, run } = group;
    for (let count = 0; count < 5; count++) await commitTwo(group);
    const inFlight = [FERN, MOSS, IVY, plant(4)].map((one) => commits.add(one));
    await run();
    jest.advanceTimersByTime(3);
    await run();
    const [first, second] = batches.slice(-2);
    first?.end(["added", "added"]);
    await run();
    jest.advanceTimersByTime(1);
    second?.end(["added", "added"]);
    expect(await Promise.all(inFlight)).toEqual(["added", "added", "added", "added"]);
    for (const one of [FERN, MOSS, IVY]) void commits.add(one);
    await run();
    expect(batches.at(-1)).toBe(second);
    jest.advanceTimersByTime(1);
    await run();
    expect(batches.at(-1)?.plants).toEqual([FERN, MOSS, IVY]);
  });

  test("while all lanes are taken, what comes back from a lock starts no linger, and no further batch", async () => {
    const { commits, batches, run } = deferred();
    const locked = [FERN, MOSS].map((one) => commits.add(one));
    await run();
    batches[0]?.end(["locked", "locked"]);
    await run();
    void commits.add(IVY);
    await run();
    jest.advanceTimersByTime(100);
    await run();
    void commits.add(plant(4));
    batches[2]?.end(["added", "added"]);
    expect(await Promise.all(locked)).toEqual(["added", "added"]);
    jest.advanceTimersByTime(10);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN, MOSS], [IVY], [FERN, MOSS]]);
  });

  test("drain() ends a linger: what is pending is flushed at once, and where nothing is no timer is left", async () => {
    for (const pending of [[], [IVY]]) {
      const group = deferred();
      await commitTwo(group);
      for (const one of pending) void group.commits.add(one);
      const drained = group.commits.drain(60_000);
      await group.run();
      expect(group.batches.slice(1).map(({ plants }) => plants)).toEqual(pending.map((one) => [one]));
      group.batches[1]?.end(["added"]);
      await drained;
      expect(jest.getTimerCount()).toBe(0);
    }
  });

  test("during drain() nobody can come: the last batch does not linger", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    void commits.add(MOSS);
    await run();
    const last = commits.add(IVY);
    const drained = commits.drain(60_000);
    batches[0]?.end(["added", "added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN, MOSS], [IVY]]);
    batches[1]?.end(["added"]);
    expect(await last).toBe("added");
    await drained;
  });

  // Failures

  test("a store that fails fails the whole batch with its own error, and takes the next batch", async () => {
    const { commits, batches, run } = deferred();
    const outcomes = [FERN, MOSS].map((one) => rejection(commits.add(one)));
    await run();
    const next = commits.add(IVY);
    const error = new PlantStoreError("storage_unavailable", "storage is full");
    batches[0]?.fail(error);
    expect(await Promise.all(outcomes)).toEqual([error, error]);
    jest.advanceTimersByTime(1);
    await run();
    expect(batches[1]?.plants).toEqual([IVY]);
    batches[1]?.end(["added"]);
    expect(await next).toBe("added");
  });

  test("a plant that is unavailable is rejected and not tried again; its neighbours have their own outcome", async () => {
    const onCommit = jest.fn();
    const { commits, batches, run } = deferred({ onCommit });
    const [fern, moss, ivy] = [commits.add(FERN), rejection(commits.add(MOSS)), commits.add(IVY)];
    await run();
    batches[0]?.end(["added", "unavailable", "present"]);
    expect(await Promise.all([fern, ivy])).toEqual(["added", "present"]);
    expect(await moss).toMatchObject({
      code: "storage_unavailable",
      message: "storage cannot take the plant now; send it again later",
      cause: new Error('the store returned "unavailable" for this plant'),
    });
    expect(commits.size()).toBe(0);
    jest.advanceTimersByTime(5_000);
    await run();
    expect(batches).toHaveLength(1);
    expect(onCommit.mock.calls).toMatchObject([[{ outcomes: ["added", "present"] }]]);
  });

  test.each<[returned: unknown, message: string]>([
    [["added"], "The store must return an outcome for each of 2 plants, but returned 1 outcomes"],
    [["added", "added", "added"], "The store must return an outcome for each of 2 plants, but returned 3 outcomes"],
    [undefined, "The store must return an outcome for each of 2 plants, but returned undefined"],
    ["inserted", "The store must return an outcome for each of 2 plants, but returned inserted"],
    [
      { length: 2, 0: "added", 1: "added" },
      "The store must return an outcome for each of 2 plants, but returned [object Object]",
    ],
    [["added", undefined], "The store returned an unknown outcome: undefined"],
    [[null, "added"], "The store returned an unknown outcome: null"],
    [["added", "inserted"], "The store returned an unknown outcome: inserted"],
    [["added", true], "The store returned an unknown outcome: true"],
    [Object.assign(Array(2), { 1: "added" }), "The store returned an unknown outcome: undefined"],
  ])("a store that returns %j fails the whole batch", async (returned, message) => {
    const onCommit = jest.fn();
    const { commits, batches, run } = deferred({ onCommit });
    const errors = [FERN, MOSS].map((one) => rejection(commits.add(one)));
    await run();
    batches[0]?.end(returned as AddOutcome[]);
    for (const error of await Promise.all(errors)) {
      expect(error).toMatchObject({ name: "TypeError", message });
    }
    expect(commits.size()).toBe(0);
    expect(onCommit).not.toHaveBeenCalled();
  });

  test("add() rejects with queue_full past the limit, and takes plants again when there is room", async () => {
    const { commits, batches, run } = deferred({ queueLimit: 2 });
    const outcomes = [commits.add(FERN), commits.add(MOSS)];
    expect(await rejection(commits.add(IVY))).toMatchObject({ code: "queue_full" });
    await run();
    batches[0]?.end(["added", "added"]);
    expect(await Promise.all(outcomes)).toEqual(["added", "added"]);
    const later = commits.add(IVY);
    jest.advanceTimersByTime(1);
    await run();
    batches[1]?.end(["added"]);
    expect(await later).toBe("added");
  });

  test("large plants fill the queue by their bytes, and a plant alone always has room", async () => {
    const { commits, batches, run } = deferred({ queueBytes: 100 });
    const large = { id: 1n, name: "x".repeat(40), tag: "y".repeat(20) };
    const outcome = commits.add(large);
    expect(await rejection(commits.add(FERN))).toMatchObject({ code: "queue_full" });
    await run();
    batches[0]?.end(["added"]);
    expect(await outcome).toBe("added");
    await run();
    const later = [commits.add({ id: 6n, name: "abcd" }), commits.add({ id: 7n, name: "x".repeat(46) })];
    expect(await rejection(commits.add(MOSS))).toMatchObject({ code: "queue_full" });
    await run();
    batches[1]?.end(["added", "added"]);
    expect(await Promise.all(later)).toEqual(["added", "added"]);
  });

  test("plants that expire leave room for as many bytes", async () => {
    const { commits, run } = deferred({ queueBytes: 100, timeoutMs: 50 });
    const half = { id: 7n, name: "x".repeat(25) };
    const inFlight = rejection(commits.add(half));
    await run();
    const pending = rejection(commits.add(half));
    expect(await rejection(commits.add(half))).toMatchObject({ code: "queue_full" });
    jest.advanceTimersByTime(50);
    expect([await inFlight, await pending]).toMatchObject([
      { code: "storage_unavailable" },
      { code: "storage_unavailable" },
    ]);
    // The one in flight still takes its half.
    const [next, tooMuch] = [tracked(commits.add(half)), rejection(commits.add(half))];
    expect(await tooMuch).toMatchObject({ code: "queue_full" });
    expect(next.settled).toBe(false);
  });

  test("plants in flight count for the limit", async () => {
    const { commits, run } = deferred({ queueLimit: 2 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    expect(await rejection(commits.add(IVY))).toMatchObject({ code: "queue_full" });
  });

  test("a plant rejected with queue_full is not handed to the store", async () => {
    const { commits, batches, run } = deferred({ queueLimit: 1 });
    void commits.add(FERN);
    await rejection(commits.add(MOSS));
    await run();
    batches[0]?.end(["added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN]]);
  });

  // Draining

  test("drain() of nothing resolves at once, and then add() rejects with shutting_down", async () => {
    const { commits } = deferred();
    await commits.drain(1_000);
    expect(await rejection(commits.add(FERN))).toMatchObject({ name: "PlantStoreError", code: "shutting_down" });
  });

  test("add() rejects from the call of drain() on, before it has resolved", async () => {
    const { commits, batches, run } = deferred();
    const taken = commits.add(FERN);
    const drained = commits.drain(1_000);
    expect(await rejection(commits.add(MOSS))).toMatchObject({ code: "shutting_down" });
    await run();
    batches[0]?.end(["added"]);
    expect(await taken).toBe("added");
    await drained;
    expect(batches).toHaveLength(1);
  });

  test("drain() resolves once every plant taken has its outcome, those pending too", async () => {
    const { commits, batches, run } = deferred();
    const first = tracked(commits.add(FERN));
    await run();
    const second = tracked(commits.add(MOSS));
    const drained = tracked(commits.drain(1_000));
    batches[0]?.end(["added"]);
    await run();
    expect([first.settled, second.settled, drained.settled]).toEqual([true, false, false]);
    batches[1]?.end(["added"]);
    await run();
    expect([second.settled, drained.settled]).toEqual([true, true]);
  });

  test("drain() resolves also when the last batch fails", async () => {
    const { commits, batches, run } = deferred();
    const outcome = rejection(commits.add(FERN));
    await run();
    const drained = commits.drain(1_000);
    batches[0]?.fail(new Error("out of order"));
    await drained;
    expect(await outcome).toMatchObject({ message: "out of order" });
  });

  test("drain() may be called twice", async () => {
    const { commits, batches, run } = deferred();
    void commits.add(FERN);
    await run();
    const drained = [commits.drain(1_000), commits.drain(1_000)];
    batches[0]?.end(["added"]);
    await Promise.all(drained);
  });

  // Deadlines

  test("a commit that takes too long rejects with storage_unavailable: its outcome is unknown", async () => {
    const { commits, run } = deferred({ timeoutMs: 100 });
    const added = tracked(rejection(commits.add(FERN)));
    await run();
    jest.advanceTimersByTime(99);
    await run();
    expect(added.settled).toBe(false);
    jest.advanceTimersByTime(1);
    expect(await added.promise).toMatchObject({
      code: "storage_unavailable",
      message: expect.stringContaining("may or may not be stored"),
    });
  });

  test("a plant pending for too long behind a commit that hangs is withdrawn: it is not stored, and the message says so", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    const stuck = rejection(commits.add(FERN));
    await run();
    const withdrawn = rejection(commits.add(MOSS));
    jest.advanceTimersByTime(100);
    expect(await withdrawn).toMatchObject({
      code: "storage_unavailable",
      message: expect.stringContaining("it is not stored"),
    });
    await stuck;
    batches[0]?.end(["added"]);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[FERN]]);
  });

  test("nothing is flushed when every plant that gathered has expired", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    const expired = rejection(commits.add(FERN));
    jest.advanceTimersByTime(100);
    expect(await expired).toMatchObject({ message: expect.stringContaining("it is not stored") });
    await run();
    expect(batches).toEqual([]);
    void commits.add(MOSS);
    await run();
    expect(batches.map(({ plants }) => plants)).toEqual([[MOSS]]);
  });

  test("every plant has a deadline of its own", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    const first = tracked(rejection(commits.add(FERN)));
    jest.advanceTimersByTime(30);
    const second = tracked(rejection(commits.add(MOSS)));
    await run();
    expect(batches[0]?.plants).toHaveLength(2);
    jest.advanceTimersByTime(30);
    const third = tracked(rejection(commits.add(IVY)));
    const seen: boolean[][] = [];
    for (const step of [39, 1, 29, 1, 29, 1]) {
      jest.advanceTimersByTime(step);
      await run();
      seen.push([first.settled, second.settled, third.settled]);
    }
    expect(seen).toEqual([
      [false, false, false],
      [true, false, false],
      [true, false, false],
      [true, true, false],
      [true, true, false],
      [true, true, true],
    ]);
  });

  test("a plant added long after the last one has its whole time", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    void commits.add(FERN);
    await run();
    batches[0]?.end(["added"]);
    await run();
    jest.advanceTimersByTime(90);
    const late = tracked(commits.add(MOSS));
    await run();
    jest.advanceTimersByTime(99);
    await run();
    expect(late.settled).toBe(false);
    batches[1]?.end(["added"]);
    expect(await late.promise).toBe("added");
  });

  test("a plant added after a long idle time has a deadline, too", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    void commits.add(FERN);
    await run();
    batches[0]?.end(["added"]);
    await run();
    jest.advanceTimersByTime(1_000);
    const stuck = rejection(commits.add(MOSS));
    await run();
    jest.advanceTimersByTime(100);
    expect(await stuck).toMatchObject({ code: "storage_unavailable" });
  });

  test("a commit that ends after its plants' deadline changes no outcome, and the next plants are stored", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    const late = rejection(commits.add(FERN));
    await run();
    jest.advanceTimersByTime(100);
    expect(await late).toMatchObject({ code: "storage_unavailable" });
    const next = commits.add(MOSS);
    await run();
    batches[0]?.end(["added"]);
    await run();
    batches[1]?.end(["added"]);
    expect(await next).toBe("added");
  });

  test("an add() settles by its deadline, whatever the clock does from one reading to the next", async () => {
    // A timer may run a little early, and time goes on while its function runs.
    for (let timeoutMs = 10; timeoutMs < 14; timeoutMs += 0.25) {
      let now = 0;
      const clock = spyOn(performance, "now").mockImplementation(() => ++now);
      const { commits, run } = deferred({ timeoutMs });
      const added = tracked(rejection(commits.add(FERN)));
      await run();
      jest.advanceTimersByTime(1_000);
      await run();
      clock.mockRestore();
      expect([timeoutMs, added.settled]).toEqual([timeoutMs, true]);
    }
  });

  test("drain() rejects after its timeout what a store that hangs leaves without an outcome, and resolves", async () => {
    const { commits, run } = deferred({ timeoutMs: 10_000 });
    const inFlight = rejection(commits.add(FERN));
    await run();
    const pending = rejection(commits.add(MOSS));
    const drained = tracked(commits.drain(500));
    jest.advanceTimersByTime(499);
    await run();
    expect(drained.settled).toBe(false);
    jest.advanceTimersByTime(1);
    expect(await inFlight).toMatchObject({
      code: "storage_unavailable",
      message: expect.stringContaining("may or may not be stored"),
    });
    expect(await pending).toMatchObject({
      code: "storage_unavailable",
      message: expect.stringContaining("it is not stored"),
    });
    await drained.promise;
  });

  test("of two drain() the shorter timeout is that of both", async () => {
    const { commits, run } = deferred({ timeoutMs: 60_000 });
    const inFlight = rejection(commits.add(FERN));
    await run();
    const drained = [commits.drain(30_000), commits.drain(500)];
    jest.advanceTimersByTime(500);
    expect(await inFlight).toMatchObject({ code: "storage_unavailable" });
    await Promise.all(drained);
    expect(jest.getTimerCount()).toBe(0);
  });

  test("the store may try for as long as the newest plant of the batch has left", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 100 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    jest.advanceTimersByTime(30);
    void commits.add(IVY);
    jest.advanceTimersByTime(60);
    batches[0]?.end(["added"]);
    await run();
    expect(batches.map(({ timeoutMs }) => timeoutMs)).toEqual([100, 40]);
  });

  test("the store may try for a millisecond at least, however late the timers are", async () => {
    let now = 0;
    const clock = spyOn(performance, "now").mockImplementation(() => (now += 10));
    const { commits, batches, run } = deferred({ timeoutMs: 1 });
    void rejection(commits.add(FERN));
    await run();
    clock.mockRestore();
    expect(batches.map(({ timeoutMs }) => timeoutMs)).toEqual([1]);
  });

  test("drain() leaves no timer behind", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 10_000 });
    void commits.add(FERN);
    await run();
    batches[0]?.end(["added"]);
    await commits.drain(500);
    expect(jest.getTimerCount()).toBe(0);
  });

  test("once every plant has its outcome no timer is left, which would keep the process alive", async () => {
    const { commits, batches, run } = deferred({ timeoutMs: 10_000 });
    void commits.add(FERN);
    await run();
    void commits.add(MOSS);
    batches[0]?.end(["added"]);
    await run();
    expect(jest.getTimerCount()).toBe(1);
    batches[1]?.end(["added"]);
    await run();
    expect(jest.getTimerCount()).toBe(0);
    const late = rejection(commits.add(IVY));
    await run();
    jest.advanceTimersByTime(10_000);
    expect(await late).toMatchObject({ code: "storage_unavailable" });
  });

  test("by default a lone plant waits for a turn of the event loop, and for no timer", async () => {
    expect(await groupCommit(memoryStore()).add(FERN)).toBe("added");
  });

  test("without setImmediate a lone plant waits for a timer of zero", async () => {
    using _ = withoutSetImmediate();
    const added = tracked(groupCommit(memoryStore()).add(FERN));
    await promisesSettled();
    expect(added.settled).toBe(false);
    jest.advanceTimersByTime(1);
    expect(await added.promise).toBe("added");
  });

  test("an option that is undefined has its default", async () => {
    const { store, batch } = deferredStore();
    const options = { queueLimit: undefined, queueBytes: undefined, timeoutMs: undefined, lanes: undefined };
    const commits = groupCommit(store, { ...options, defer: undefined, onCommit: undefined });
    const outcomes = [commits.add(FERN), commits.add(MOSS)];
    const { plants, timeoutMs, end } = await batch(0);
    expect({ plants, timeoutMs }).toEqual({ plants: [FERN, MOSS], timeoutMs: 5_000 });
    end(["added", "present"]);
    expect(await Promise.all(outcomes)).toEqual(["added", "present"]);
  });
});

function withoutSetImmediate(): Disposable {
  const { setImmediate } = globalThis;
  Reflect.deleteProperty(globalThis, "setImmediate");
  return { [Symbol.dispose]: () => void Object.assign(globalThis, { setImmediate }) };
}

// With real timers

test("groupCommit() works with its own defaults", async () => {
  const commits = groupCommit(memoryStore());
  expect(await Promise.all([commits.add(FERN), commits.add(FERN), commits.add({ ...FERN, name: "Ivy" })])).toEqual([
    "added",
    "present",
    "conflict",
  ]);
  await commits.drain(1_000);
});

test("a store that throws instead of rejecting fails the batch, too", async () => {
  const { store } = deferredStore();
  const cause = new Error("out of order");
  const commits = groupCommit({
    ...store,
    add: () => {
      throw cause;
    },
  });
  expect(await rejection(commits.add(FERN))).toBe(cause);
  expect(await rejection(commits.add(MOSS))).toBe(cause);
});

// A real database

const CLIENTS = 1_000;

test("of 1,000 concurrent posts of one plant all are 200, one plant is stored, and re-sends are 200, too", async () => {
  await using sqlite = await sqliteApp();
  for (let round = 0; round < 2; round++) {
    const responses = await sqlite.postAll(() => ({ id: 7, name: "Fern", tag: "indoor" }));
    expect(responses).toEqual(Array.from(responses, () => ({ status: 200, body: { name: "Fern", tag: "indoor" } })));
    expect(sqlite.rows()).toEqual([{ id: 7n, name: "Fern", tag: "indoor" }]);
  }
});

test("of 1,000 different plants posted at once under one id one is 200, the others 409, and that one is stored", async () => {
  await using sqlite = await sqliteApp();
  const responses = await sqlite.postAll((i) => ({ id: 7, name: `plant ${i}` }));
  const winners = responses.filter(({ status }) => status === 200);
  expect(winners).toHaveLength(1);
  const losers = responses.filter(({ status, body }) => status === 409 && body.error === 4091);
  expect(losers).toHaveLength(CLIENTS - 1);
  expect(sqlite.rows()).toEqual([{ id: 7n, name: winners[0]?.body.name, tag: null }]);
});

test("1,000 plants posted at once are all stored, each as it was sent", async () => {
  await using sqlite = await sqliteApp();
  const responses = await sqlite.postAll((i) => ({ id: i, name: `plant ${i}`, tag: `tag ${i}` }));
  expect(responses).toEqual(
    Array.from(responses, (_, i) => ({ status: 200, body: { name: `plant ${i}`, tag: `tag ${i}` } })),
  );
  expect(sqlite.rows()).toEqual(
    Array.from(responses, (_, i) => ({ id: BigInt(i), name: `plant ${i}`, tag: `tag ${i}` })),
  );
});

interface CannedResponse {
  readonly status: number;
  readonly body: { name?: string; tag?: string; error?: number };
}

async function sqliteApp() {
  const directory = emptyDirectory();
  const path = `${directory.path}/plants.db`;
  const database = await openSqliteWorker(path);
  const app = testApp({ plants: groupCommit(database.plants) });
  async function post(body: object): Promise<CannedResponse> {
    const response = await app.fetch(postPlant(body));
    return { status: response.status, body: (await response.json()) as CannedResponse["body"] };
  }
  return {
    postAll: (body: (i: number) => object) => Promise.all(Array.from({ length: CLIENTS }, (_, i) => post(body(i)))),
    /** What another process sees in the file, ordered by id. */
    rows() {
      using reader = new Database(path, { readonly: true, safeIntegers: true });
      return reader.query("SELECT id, name, tag FROM plants ORDER BY id").all();
    },
    async [Symbol.asyncDispose]() {
      await database[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
}

function plant(number: number): NewPlant {
  return { id: BigInt(number), name: `plant ${number}` };
}

/** A group commit whose commits end, and whose turns come, when the test says so. */
function deferred(options: GroupCommitOptions = {}) {
  const { store, batches } = deferredStore();
  const turns = manualTurns();
  return { commits: groupCommit(store, { defer: turns.defer, ...options }), batches, ...turns };
}

type Group = Pick<ReturnType<typeof deferred>, "commits" | "batches" | "run">;

/** Ends the next tries of plants that are locked, from this batch on. */
async function endRetries(
  { batches, run }: Omit<Group, "commits">,
  from: number,
  outcomes: readonly StoreOutcome[],
): Promise<void> {
  for (const [index, outcome] of outcomes.entries()) {
    jest.advanceTimersByTime(100);
    await run();
    batches[from + index]?.end([outcome]);
    await run();
  }
}

/** Two plants at once, in one batch that is back at the end. */
async function commitTwo({ commits, batches, run }: Group): Promise<void> {
  void commits.add(FERN);
  void commits.add(MOSS);
  await run();
  batches.at(-1)?.end(["added", "added"]);
  await run();
}

/** How long a batch lingers that is not complete, in milliseconds; it is back at the end. */
async function lingerMs({ commits, batches, run }: Group): Promise<number> {
  const before = batches.length;
  void commits.add(IVY);
  await run();
  let ms = 0;
  for (; batches.length === before && ms < 100; ms++) {
    jest.advanceTimersByTime(1);
    await run();
  }
  batches.at(-1)?.end(["added"]);
  await run();
  return ms;
}

function tracked<Value>(promise: Promise<Value>) {
  const state = { promise, settled: false };
  const end = () => void (state.settled = true);
  promise.then(end, end);
  return state;
}

function rejection(promise: Promise<AddOutcome>): Promise<unknown> {
  return promise.then(
    (outcome) => {
      throw new Error(`Expected a rejection, got "${outcome}"`);
    },
    (error: unknown) => error,
  );
}
