import { afterEach, beforeEach, expect, jest, spyOn, test } from "bun:test";

import { memoryStore } from "../../src/database/memory.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { groupCommit, type GroupCommitOptions } from "../../src/group_commit/group_commit.ts";
import type { AddOutcome, PlantStore, StoreOutcome } from "../../src/group_commit/plant_store.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { fern, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { promisesSettled } from "../support/promises_settled.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

// When batches leave: next_step.test.ts has every decision, and these hold that the class carries
// them out.

test.each<[what: string, options: GroupCommitOptions, ...steps: Step[]]>([
  // Batches
  [
    "a lone plant does not wait for others: it is flushed after one turn, and resolves when the store has committed",
    {},
    "add 1 →",
    "turn → store 1",
    "turns →",
    "end added → 1 added",
    "turns; waiting; timers → waiting 0; timers 0",
  ],
  [
    "the plants that arrive in one turn are one batch",
    {},
    "add 1 →",
    "add 2; turn → store 1 2",
    "add 3; turns →",
  ],
  [
    "while one batch is in flight the next one gathers, and is flushed only after it",
    {},
    "add 1; turns → store 1",
    "add 2; turns; add 3; turns; tick 100 →",
    "end; turns → 1 added; store 2 3",
  ],
  [
    "plants added at once are one batch, in the order of arrival, and each gets its own outcome; an unavailable one is rejected",
    {},
    "add 3 1 2 1; turns → store 3 1 2 1",
    "end added conflict unavailable present → 3 added; 1 conflict; 2 storage is unavailable; send the plant again later; 1 present",
    "size; tick 5000; turns → size 0",
  ],
  [
    "a store that fails fails the whole batch with its own error, and takes the next batch",
    {},
    "add 1 2; turns → store 1 2",
    "add 3; fail → 1 out of order; 2 out of order",
    "turns → store 3",
    "end → 3 added",
  ],
  // Several in flight
  [
    "no more batches are in flight than may be",
    { maxInFlight: 2 },
    "add 1; turns → store 1",
    "add 2; tick 3; turns → store 2",
    "add 3; tick 3; turns; size → size 3",
    "end-last; turns; size → 2 added; store 3; size 2",
  ],
  [
    "after a fast commit the next batch takes what came meanwhile, and its timer ends",
    { maxInFlight: 4 },
    "add 1; turns → store 1",
    "add 2; turns; timers → timers 2",
    "end; timers → 1 added; timers 1",
    "add 3; turns → store 2 3",
    "add 4; tick 2; turns →",
    "tick 1 → store 4",
  ],
  // Lingering
  [
    "after a commit of several, the next batch lingers until as many more come; those already pending do not count",
    {},
    "add 1 2; turns → store 1 2",
    "add 3; end; turns → 1 added; 2 added",
    "add 1; turns →",
    "add 2 → store 3 1 2",
    "tick 10; turns →",
  ],
  [
    "if no further plant comes, no batch leaves, no timer is left, and a later plant does not wait",
    {},
    "add 1 2; turns; end → store 1 2; 1 added; 2 added",
    "tick 1; turns; timers → timers 0",
    "add 3; turn → store 3",
  ],
  [
    "after a commit of nine milliseconds a batch lingers for three, and after a fast one for one",
    {},
    "add 1 2; turns; tick 9; end → store 1 2; 1 added; 2 added",
    "add 3; tick 2 →",
    "tick 1; end → store 3; 3 added",
    "add 1 2; turns; end; add 3; tick 1 → store 1 2; 1 added; 2 added; store 3",
  ],
  [
    "a batch that comes back during a linger makes it wait for more plants, but not for longer",
    { maxInFlight: 2 },
    "add 1 2; turns; tick 5; add 3; turns → store 1 2; store 3",
    "end → 1 added; 2 added",
    "tick 1; end → 3 added",
    "add 4 5 →",
    "tick 1 → store 4 5",
  ],
  [
    "a batch that comes back while the next one gathers does not make it linger",
    { maxInFlight: 2 },
    "add 1 2; turns; tick 5; add 3; end; timers → store 1 2; 1 added; 2 added; timers 1",
    "turn → store 3",
  ],
  [
    "after a failed commit no batch lingers: its clients were told to come back later",
    {},
    "add 1 2; turns; fail; timers → store 1 2; 1 out of order; 2 out of order; timers 0",
    "add 3; turns → store 3",
  ],
  [
    "plants that are unavailable are not expected to come back at once",
    {},
    "add 1 2; turns; end unavailable unavailable; timers → store 1 2; 1 storage is unavailable; send the plant again later; 2 storage is unavailable; send the plant again later; timers 0",
    "add 1 2 3; turns; end added unavailable added; add 4; turns → store 1 2 3; 1 added; 2 storage is unavailable; send the plant again later; 3 added",
    "add 5; turns → store 4 5",
  ],
  [
    "a commit that fails during a linger does not end it",
    { maxInFlight: 2 },
    "add 1 2; turns; tick 5; add 3; turns → store 1 2; store 3",
    "end; fail → 1 added; 2 added; 3 out of order",
    "add 4; turns →",
    "add 5 → store 4 5",
  ],
  [
    "drain() ends a linger in which nothing is pending",
    {},
    "add 1 2; turns; end → store 1 2; 1 added; 2 added",
    "drain 60000; timers → drained; timers 0",
  ],
  // Texts
  [
    "a batch has a megabyte of text, or one plant; what is more has batches and outcomes of its own",
    {},
    "add 1*600000 2*400000 3*60000 4*2000000 5*1; turns → store 1 2",
    "end; tick 1 → 1 added; 2 added; store 3",
    "fail; turns → 3 out of order; store 4",
    "end; turns; end → 4 added; store 5; 5 added",
  ],
  [
    "what a batch has no room for leaves on the next connection, three milliseconds after",
    { maxInFlight: 2 },
    "add 1*600000 2*600000; turns; tick 2 → store 1",
    "tick 1 → store 2",
  ],
  [
    "large plants fill the queue by their bytes, two for a UTF-16 code unit, and a plant alone always has room",
    { queueBytes: 100 },
    "add 1*60 2*0; turns; end; turns → 2 queue_full; store 1; 1 added",
    "add 3*4 4*45 5*2 6*1; turns; end → 5 queue_full; store 3 4 6; 3 added; 4 added; 6 added",
  ],
  [
    "plants that expire leave room for as many bytes, once they are not in flight",
    { queueBytes: 100, timeoutMs: 50 },
    "add 7*25; turns; add 8*25 9*25 → store 7 in 45; 9 queue_full",
    "tick 50; add 10*25 11*25 → 7 unknown; 8 not stored; 11 queue_full",
  ],
  // Admission
  [
    "add() rejects with queue_full past the limit, and takes plants again when there is room",
    { queueLimit: 2 },
    "add 1 2 3 → 3 queue_full",
    "turns → store 1 2",
    "add 4 → 4 queue_full",
    "end → 1 added; 2 added",
    "add 5; tick 1 → store 5",
  ],
  [
    "the queue is as full as the larger share of its two limits, the plants and their bytes, and those in flight count",
    { queueLimit: 4, queueBytes: 100 },
    "fill; add 1; fill; add 2*20; fill; turns; fill → fill 0; fill 0.25; fill 0.56; store 1 2; fill 0.56",
    "add 3*10; fill; end; fill → fill 0.76; 1 added; 2 added; fill 0.25",
    "tick 3; turns; end; fill → store 3; 3 added; fill 0",
  ],
  // Draining
  [
    "add() rejects once drain() is called; plants accepted before get their outcomes",
    {},
    "add 1; turns; add 2 → store 1",
    "drain 1000; add 3 → 3 shutting_down",
    "end; turns → 1 added; store 2",
    "end → 2 added; drained",
    "timers → timers 0",
  ],
  [
    "drain() resolves even if the last batch fails",
    {},
    "add 1; turns; drain 1000; fail → store 1; 1 out of order; drained",
  ],
  [
    "after its timeout drain() rejects the plants that a hanging store holds, and resolves",
    {},
    "add 1; turns; add 2 → store 1",
    "drain 500; tick 499 →",
    "tick 1 → 1 unknown; 2 not stored; drained",
    "timers → timers 0",
  ],
  [
    "drain() may be called twice, and the shorter timeout applies to both",
    {},
    "add 1; turns; drain 3000; drain 500 → store 1",
    "tick 500 → 1 unknown; drained; drained",
    "timers → timers 0",
  ],
  // Deadlines
  [
    "a commit that takes too long rejects with an unknown outcome; the batch counts until it is back, and the next plants are stored",
    { timeoutMs: 100 },
    "add 1; turns → store 1 in 90",
    "tick 99 →",
    "tick 1; size → 1 unknown; size 1",
    "add 2; turns; end; turns; size → store 2 in 90; size 1",
    "end → 2 added",
  ],
  [
    "every plant has a deadline of its own, in flight and pending",
    { timeoutMs: 100 },
    "add 1; tick 30; add 2; turns → store 1 2 in 90",
    "tick 30; add 3; tick 20; add 4 →",
    "tick 19 →",
    "tick 1 → 1 unknown",
    "tick 29 →",
    "tick 1 → 2 unknown",
    "tick 29 →",
    "tick 1 → 3 not stored",
    "tick 19 →",
    "tick 1; timers → 4 not stored; timers 0",
  ],
  [
    "a plant that is added long after the last one has its whole time, and a deadline",
    { timeoutMs: 100 },
    "add 1; turns; end; timers → store 1 in 90; 1 added; timers 0",
    "tick 90; add 2; turns; tick 99 → store 2 in 90",
    "tick 1 → 2 unknown",
  ],
  [
    "the store gets the time that the newest plant of the batch has left",
    { timeoutMs: 100 },
    "add 1; turns; add 2; tick 30; add 3; tick 60; end; turns → store 1 in 90; 1 added; store 2 3 in 36",
  ],
  [
    "drain() resolves when the deadline of the last pending plant is over",
    { timeoutMs: 100 },
    "add 1; drain 60000; tick 100 → 1 not stored; drained",
  ],
  [
    "an option that is undefined has its default",
    { queueLimit: undefined, queueBytes: undefined, timeoutMs: undefined, maxInFlight: undefined },
    "add 1; turns; add 2; tick 4999 → store 1",
    "tick 1 → 1 unknown; 2 not stored",
  ],
])("%s", async (_what, options, ...steps) => {
  const { after } = timeline(options);
  const happened: Step[] = [];
  for (const step of steps) {
    const action = step.slice(0, step.indexOf(" →"));
    happened.push(`${action} → ${await after(action)}`.trimEnd());
  }
  expect(happened).toEqual(steps);
});

test("disposing of the queue drains it, and a store in memory can be disposed of", async () => {
  jest.useRealTimers();
  const commits = groupCommit(memoryStore());
  const stored = commits.add(FERN);
  {
    await using store = memoryStore();
    await using _ = commits;
    expect(await store.add([FERN], { timeoutMs: 1_000 })).toEqual(["added"]);
  }
  expect(await stored).toBe("added");
  await expect(commits.add(MOSS)).rejects.toMatchObject({ code: "shutting_down" });
});

// What a store returns

test.each<[returned: unknown, message: string]>([
  [["added"], "The store must return an outcome for each of 2 plants, but returned 1 outcomes"],
  [undefined, "The store must return an outcome for each of 2 plants, but returned undefined"],
  [
    { length: 2, 0: "added", 1: "added" },
    "The store must return an outcome for each of 2 plants, but returned [object Object]",
  ],
  [[null, "added"], "The store returned an unknown outcome: null"],
  [["added", "inserted"], "The store returned an unknown outcome: inserted"],
  [Object.assign(Array(2), { 1: "added" }), "The store returned an unknown outcome: undefined"],
])("a store that returns %j fails the whole batch", async (returned, message) => {
  const onCommit = jest.fn();
  const add = async () => returned as AddOutcome[];
  const commits = groupCommit({ ...memoryStore(), add }, { onCommit });
  const rejected = { status: "rejected", reason: { name: "TypeError", message } };

  expect(await Promise.allSettled([commits.add(FERN), commits.add(MOSS)])).toMatchObject([
    rejected,
    rejected,
  ]);
  expect(commits.size()).toBe(0);
  expect(onCommit).not.toHaveBeenCalled();
});

test("a plant whose data the store refuses fails alone: the others are committed in halves", async () => {
  jest.useRealTimers();
  const { store, batches, refusal } = storeThatRefuses(3n);
  const commits = groupCommit(store);

  const adding = [1n, 2n, 3n, 4n, 5n].map((id) => commits.add(fern({ id })));
  const added = { status: "fulfilled", value: "added" };
  const results = [added, added, { status: "rejected", reason: refusal }, added, added];
  expect<unknown>(await Promise.allSettled(adding)).toEqual(results);
  expect(batches).toEqual(["1 2 3 4 5", "1 2 3", "1 2", "3", "4 5"]);
});

test("no halves are committed for callers that have given up", async () => {
  jest.useRealTimers();
  const late = Promise.withResolvers<void>();
  const { store, batches } = storeThatRefuses(2n, late.promise);
  const commits = groupCommit(store, { timeoutMs: 20 });

  const adding = [1n, 2n].map((id) => commits.add(fern({ id })));
  const given = { status: "rejected", reason: { code: "storage_unavailable" } };
  expect(await Promise.allSettled(adding)).toMatchObject([given, given]);
  late.resolve();
  await commits.drain(1_000);

  expect(batches).toEqual(["1 2"]);
});

/** A store that refuses the data of a plant, and the ids of the batches that it was given. */
function storeThatRefuses(refused: bigint, until = Promise.resolve()) {
  const memory = memoryStore();
  const batches: string[] = [];
  const refusal = new PlantStoreError("internal");

  const store: PlantStore = {
    ...memory,
    async add(plants, options) {
      batches.push(plants.map(({ id }) => id).join(" "));
      await until;
      if (plants.some(({ id }) => id === refused)) throw refusal;
      return await memory.add(plants, options);
    },
  };
  return { store, batches, refusal };
}

test("a store that throws instead of rejecting also fails the batch", async () => {
  const cause = new Error("out of order");
  const add = () => {
    throw cause;
  };
  const commits = groupCommit({ ...memoryStore(), add });
  for (const plant of [FERN, MOSS]) await expect(commits.add(plant)).rejects.toBe(cause);
});

test("the cause of an unavailable plant says that the store called it so", async () => {
  const add = async () => ["unavailable"] as const;
  const commits = groupCommit({ ...memoryStore(), add });
  const cause = { message: 'the store returned "unavailable" for this plant' };
  await expect(commits.add(FERN)).rejects.toMatchObject({ code: "storage_unavailable", cause });
});

test("onCommit is called with the outcomes and the duration, and not for a commit that stored nothing", async () => {
  const onCommit = jest.fn();
  const { after } = timeline({ onCommit });
  await after("add 1 2; turns; tick 7; end added unavailable; tick 1");
  await after("add 1; turns; end unavailable; add 2; turns; fail");
  expect(onCommit.mock.calls).toEqual([[{ outcomes: ["added"], durationMs: 7 }]]);
});

// Clocks

test("add() settles by its deadline, whatever the clock does between two readings", async () => {
  // A timer may run a little early, and time goes on while its function runs.
  for (let timeoutMs = 10; timeoutMs < 14; timeoutMs += 0.25) {
    let now = 0;
    const clock = spyOn(performance, "now").mockImplementation(() => ++now);
    const events = await timeline({ timeoutMs }).after("add 1; turns; tick 1000; turns");
    clock.mockRestore();
    expect([timeoutMs, events]).toEqual([timeoutMs, expect.stringContaining("1 unknown")]);
  }
});

test("the store gets at least one millisecond, however late the timers are", async () => {
  let now = 0;
  const clock = spyOn(performance, "now").mockImplementation(() => (now += 10));
  const events = await timeline({ timeoutMs: 1 }).after("add 1; turns");
  clock.mockRestore();
  expect(events).toBe("store 1 in 1");
});

// Defaults

test("by default a lone plant waits for a turn of the event loop, and for no timer", async () => {
  expect(await groupCommit(memoryStore(), { onCommit: undefined }).add(FERN)).toBe("added");
});

test("without setImmediate a lone plant waits for a timer", async () => {
  const { setImmediate } = globalThis;
  Reflect.deleteProperty(globalThis, "setImmediate");
  const outcome = groupCommit(memoryStore()).add(FERN);
  Object.assign(globalThis, { setImmediate });

  // The other one is for its deadline.
  expect(jest.getTimerCount()).toBe(2);

  jest.advanceTimersByTime(1);
  expect(await outcome).toBe("added");
});

const FERN: NewPlant = fern();
const MOSS: NewPlant = moss({ id: 2n });

/**
 * What a test does, in words separated by "; ":
 *
 * - `add 1 2*60`: adds plants with these ids, and with so many UTF-16 code units of text;
 * - `turn`: one turn of the event loop; `turns`: until nothing waits for one any more;
 * - `tick 3`: three milliseconds pass;
 * - `end added conflict`: the oldest batch in flight comes back, by default with every plant added;
 *   `end-last`: the newest;
 * - `fail`: the oldest batch in flight fails;
 * - `drain 500`: drains for so many milliseconds;
 * - `size`, `timers`, `waiting`: reports how many plants have no outcome, timers run, functions wait
 *   for a turn.
 */
type Action = string;

/**
 * What happened then, in the order of events, separated by "; ": `store 1 2`, with `in 100` if a
 * `timeoutMs` is given; `1 added`; `1 not stored` and `1 unknown` for the two messages of
 * `storage_unavailable`; `1 queue_full`; `drained`.
 */
type Events = string;

/** `action → events`: what a test does, and what happens then. */
type Step = string;

/** A group commit with fake timers, whose commits end, and whose turns come, when an action says so. */
function timeline(options: GroupCommitOptions = {}) {
  const events: string[] = [];
  const inFlight: (PromiseWithResolvers<readonly StoreOutcome[]> & { readonly count: number })[] =
    [];

  /** What waits for the next turn. */
  const waiting: (() => void)[] = [];

  const add: PlantStore["add"] = (plants, { timeoutMs }) => {
    const ids = plants.map(({ id }) => id).join(" ");
    events.push(`store ${ids}${options.timeoutMs === undefined ? "" : ` in ${timeoutMs}`}`);
    const batch = { ...Promise.withResolvers<readonly StoreOutcome[]>(), count: plants.length };
    inFlight.push(batch);
    return batch.promise;
  };

  const onTurn = (run: () => void) => void waiting.push(run);
  spyOn(globalThis, "setImmediate").mockImplementation(onTurn as never);
  const commits = groupCommit({ ...memoryStore(), add }, options);

  function addOne(id: string, units: number): void {
    const optional = "y".repeat(units / 2);
    // Its texts alone, which have this size in any record.
    const plant = {
      id: BigInt(id),
      [TEXT]: "x".repeat(Math.ceil(units / 2)),
      ...(optional !== "" && { [OPTIONAL_TEXT]: optional }),
    } as Partial<NewPlant> as NewPlant;
    commits.add(plant).then(
      (outcome) => events.push(`${id} ${outcome}`),
      (error: PlantStoreError) => events.push(`${id} ${wordFor(error)}`),
    );
  }

  async function turn(): Promise<void> {
    for (const run of waiting.splice(0)) run();
    await promisesSettled();
  }

  const end = (batch: (typeof inFlight)[number] | undefined, words: readonly string[]) =>
    batch?.resolve(words.length > 0 ? (words as StoreOutcome[]) : Array(batch.count).fill("added"));
  const actions: Readonly<Record<string, (...words: string[]) => unknown>> = {
    add(...plants) {
      for (const [id = "", units = "8"] of plants.map((plant) => plant.split("*")))
        addOne(id, Number(units));
    },
    turn,
    async turns() {
      while (waiting.length > 0) await turn();
    },
    tick: (ms) => jest.advanceTimersByTime(Number(ms)),
    end: (...words) => end(inFlight.shift(), words),
    "end-last": (...words) => end(inFlight.pop(), words),
    fail: () => inFlight.shift()?.reject(new Error("out of order")),
    drain: (ms) => void commits.drain(Number(ms)).then(() => events.push("drained")),
    size: () => events.push(`size ${commits.size()}`),
    fill: () => events.push(`fill ${commits.fill()}`),
    timers: () => events.push(`timers ${jest.getTimerCount()}`),
    waiting: () => events.push(`waiting ${waiting.length}`),
  };

  /** Does what is written, and returns what happened. */
  async function after(written: Action): Promise<Events> {
    for (const action of written.split("; ")) {
      const [name = "", ...words] = action.split(" ");
      const act = actions[name];
      if (act === undefined) throw new Error(`Unknown action "${action}"`);

      await act(...words);
      await promisesSettled();
    }

    return events.splice(0).join("; ");
  }

  return { after };
}

function wordFor({ code, message }: PlantStoreError): string {
  if (code !== "storage_unavailable") return code ?? message;
  if (message === "storage did not take the plant in time; it is not stored, send it again")
    return "not stored";
  return message ===
    "storage did not finish in time; the plant may or may not be stored, send it again"
    ? "unknown"
    : message;
}
