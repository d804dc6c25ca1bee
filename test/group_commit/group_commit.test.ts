import { Database } from "bun:sqlite";
import { afterEach, beforeEach, describe, expect, jest, setDefaultTimeout, spyOn, test } from "bun:test";
import { memoryStore } from "../../src/database/memory.ts";
import { openSqliteWorker } from "../../src/database/sqlite/adapter.ts";
import type { PlantStoreError } from "../../src/errors.ts";
import { type GroupCommitOptions, groupCommit } from "../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import type { AddOutcome, StoreOutcome } from "../../src/database/database.ts";
import { postPlant, testApp } from "../support/app.ts";
import { type DeferredBatch, deferredStore, promisesSettled } from "../support/deferred_store.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

// When batches leave: next_step.test.ts has every decision, and these hold that the class carries them out.

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
    "a batch that still grows gathers on, but for four turns at most",
    {},
    "add 1 →",
    "add 2; turn →",
    "add 3; turn →",
    "add 4; turn →",
    "add 5; turn → store 1 2 3 4 5",
    "add 6; turns →",
  ],
  ["a batch that no longer grows is flushed", {}, "add 1 →", "add 2; turn →", "turn → store 1 2"],
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
    "tick 1 → store 3",
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
    "a fast commit takes with the next batch what came meanwhile, and the timer for it ends",
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
    "after a commit of several, the next batch lingers until as many more come; those that are pending already do not complete it",
    {},
    "add 1 2; turns → store 1 2",
    "add 3; end; turns → 1 added; 2 added",
    "add 1; turns →",
    "add 2 → store 3 1 2",
    "tick 10; turns →",
  ],
  [
    "if no client sends again, nothing is flushed, no timer is left, and a plant that comes later does not wait",
    {},
    "add 1 2; turns; end → store 1 2; 1 added; 2 added",
    "tick 1; turns; timers → timers 0",
    "add 3; turn → store 3",
  ],
  [
    "a batch that comes back during a linger makes it wait for more plants, and no longer",
    { maxInFlight: 2 },
    "add 1 2; turns; end → store 1 2; 1 added; 2 added",
    "add 1 2; end → store 1 2; 1 added; 2 added",
    "add 1 2; end → store 1 2; 1 added; 2 added",
    "add 1 2; end → store 1 2; 1 added; 2 added",
    "add 1 2; end → store 1 2; 1 added; 2 added",
    "add 1 2; add 3; tick 3 → store 1 2; store 3",
    "end → 1 added; 2 added",
    "tick 1; end → 3 added",
    "add 4 5 →",
    "tick 1 → store 4 5",
  ],
  [
    "drain() ends a linger in which nothing is pending",
    {},
    "add 1 2; turns; end → store 1 2; 1 added; 2 added",
    "drain 60000; timers → drained; timers 0",
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
  // Draining
  [
    "add() rejects from the call of drain() on; what was taken before has its outcome",
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
    "drain() rejects after its timeout what a store that hangs leaves without an outcome, and resolves",
    {},
    "add 1; turns; add 2 → store 1",
    "drain 500; tick 499 →",
    "tick 1 → 1 unknown; 2 not stored; drained",
    "timers → timers 0",
  ],
  [
    "drain() may be called twice, and the shorter timeout is that of both",
    {},
    "add 1; turns; drain 3000; drain 500 → store 1",
    "tick 500 → 1 unknown; drained; drained",
    "timers → timers 0",
  ],
  // Deadlines
  [
    "a commit that takes too long rejects with an unknown outcome; the batch counts until it is back, and the next plants are stored",
    { timeoutMs: 100 },
    "add 1; turns → store 1 in 100",
    "tick 99 →",
    "tick 1; size → 1 unknown; size 1",
    "add 2; turns; end; turns; size → store 2 in 100; size 1",
    "end → 2 added",
  ],
  [
    "every plant has a deadline of its own, in flight and pending",
    { timeoutMs: 100 },
    "add 1; tick 30; add 2; turns → store 1 2 in 100",
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
    "add 1; turns; end; timers → store 1 in 100; 1 added; timers 0",
    "tick 90; add 2; turns; tick 99 → store 2 in 100",
    "tick 1 → 2 unknown",
  ],
  [
    "the store may try for as long as the newest plant of the batch has left",
    { timeoutMs: 100 },
    "add 1; turns; add 2; tick 30; add 3; tick 60; end; turns → store 1 in 100; 1 added; store 2 3 in 40",
  ],
  [
    "drain() resolves when the deadline of the last pending plant is over",
    { timeoutMs: 100 },
    "add 1; drain 60000; tick 100 → 1 not stored; drained",
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

test.each([
  [0, 1],
  [3, 1],
  [4, 2],
  [7, 2],
  [8, 3],
  [40, 3],
])(
  "after %d complete batches in a row one lingers for %d ms, and after it the next one for a millisecond",
  async (complete, ms) => {
    const { after } = timeline();
    await after("add 1 2; turns; end");
    for (let count = 0; count < complete; count++) expect(await after("add 1 2; end")).toStartWith("store 1 2");
    let events = await after("add 3");
    let waitedMs = 0;
    for (; events === ""; waitedMs++) events = await after("tick 1");
    expect([events, waitedMs]).toEqual(["store 3", ms]);
    await after("end; add 1 2; turns; end; add 3");
    expect(await after("tick 1")).toBe("store 3");
  },
);

test("a batch that comes back while the next one gathers takes nothing from the linger after it", async () => {
  const { after } = timeline({ maxInFlight: 2 });
  await after("add 1 2; turns; end");
  for (let count = 0; count < 8; count++) await after("add 1 2; end");
  expect(await after("add 1 2; tick 5; add 3; end; turns; end")).toBe("store 1 2; 1 added; 2 added; store 3; 3 added");
  expect(await after("add 1 2; turns; end; add 3; tick 2")).toBe("store 1 2; 1 added; 2 added");
  expect(await after("tick 1")).toBe("store 3");
});

// Texts

test("a batch has a megabyte of text, or one plant; what is more has batches and outcomes of its own", async () => {
  const { addOne, after } = timeline();
  [600_000, 400_000, 60_000, 2_000_000, 1].forEach((length, index) =>
    addOne({ id: BigInt(index), name: "x", tag: "x".repeat(length - 1) }),
  );
  expect(await after("turns")).toBe("store 0 1");
  expect(await after("end; tick 1")).toBe("0 added; 1 added; store 2");
  expect(await after("fail; turns")).toBe("2 out of order; store 3");
  expect(await after("end; turns; end")).toBe("3 added; store 4; 4 added");
});

test("what a batch has no room for leaves on the next connection, three milliseconds after", async () => {
  const { addOne, after } = timeline({ maxInFlight: 2 });
  for (const id of [1n, 2n]) addOne({ id, name: "x".repeat(600_000) });
  expect(await after("turns; tick 2")).toBe("store 1");
  expect(await after("tick 1")).toBe("store 2");
});

test("large plants fill the queue by their bytes, two for a UTF-16 code unit, and a plant alone always has room", async () => {
  const { addOne, after } = timeline({ queueBytes: 100 });
  addOne({ id: 1n, name: "x".repeat(40), tag: "y".repeat(20) });
  addOne({ id: 2n, name: "" });
  expect(await after("turns; end; turns")).toBe("2 queue_full; store 1; 1 added");
  for (const [id, length] of [
    [3n, 4],
    [4n, 45],
    [5n, 2],
    [6n, 1],
  ] as const)
    addOne({ id, name: "x".repeat(length - 1), tag: "y" });
  expect(await after("turns; end")).toBe("5 queue_full; store 3 4 6; 3 added; 4 added; 6 added");
});

test("plants that expire leave room for as many bytes, once they are not in flight", async () => {
  const { addOne, after } = timeline({ queueBytes: 100, timeoutMs: 50 });
  const half = { id: 7n, name: "x".repeat(25) };
  addOne(half);
  await after("turns");
  for (const id of [8n, 9n]) addOne({ ...half, id });
  expect(await after("tick 50")).toBe("9 queue_full; 7 unknown; 8 not stored");
  for (const id of [10n, 11n]) addOne({ ...half, id });
  expect(await after("turns")).toBe("11 queue_full");
});

// What a store returns

test.each<[returned: unknown, message: string]>([
  [["added"], "The store must return an outcome for each of 2 plants, but returned 1 outcomes"],
  [["added", "added", "added"], "The store must return an outcome for each of 2 plants, but returned 3 outcomes"],
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
  const commits = groupCommit({ ...memoryStore(), add }, { defer: queueMicrotask, onCommit });
  const errors = [FERN, MOSS].map((plant) => rejection(commits.add(plant)));
  for (const error of await Promise.all(errors)) expect(error).toMatchObject({ name: "TypeError", message });
  expect(commits.size()).toBe(0);
  expect(onCommit).not.toHaveBeenCalled();
});

test("a store that throws instead of rejecting fails the batch, too", async () => {
  const cause = new Error("out of order");
  const add = () => {
    throw cause;
  };
  const commits = groupCommit({ ...memoryStore(), add }, { defer: queueMicrotask });
  for (const plant of [FERN, MOSS]) expect(await rejection(commits.add(plant))).toBe(cause);
});

test("the cause of an unavailable plant says that the store called it so", async () => {
  const add = async () => ["unavailable"] as const;
  const commits = groupCommit({ ...memoryStore(), add }, { defer: queueMicrotask });
  const cause = { message: 'the store returned "unavailable" for this plant' };
  expect(await rejection(commits.add(FERN))).toMatchObject({ code: "storage_unavailable", cause });
});

test("onCommit hears of outcomes with how long the commit took, and of no commit that stored nothing", async () => {
  const onCommit = jest.fn();
  const { after } = timeline({ onCommit });
  await after("add 1 2; turns; tick 7; end added unavailable; tick 1");
  await after("add 1; turns; end unavailable; add 2; turns; fail");
  expect(onCommit.mock.calls).toEqual([[{ outcomes: ["added"], durationMs: 7 }]]);
});

// Clocks

test("an add() settles by its deadline, whatever the clock does from one reading to the next", async () => {
  // A timer may run a little early, and time goes on while its function runs.
  for (let timeoutMs = 10; timeoutMs < 14; timeoutMs += 0.25) {
    let now = 0;
    const clock = spyOn(performance, "now").mockImplementation(() => ++now);
    const events = await timeline({ timeoutMs }).after("add 1; turns; tick 1000; turns");
    clock.mockRestore();
    expect([timeoutMs, events]).toEqual([timeoutMs, expect.stringContaining("1 unknown")]);
  }
});

test("the store may try for a millisecond at least, however late the timers are", async () => {
  let now = 0;
  const clock = spyOn(performance, "now").mockImplementation(() => (now += 10));
  const events = await timeline({ timeoutMs: 1 }).after("add 1; turns");
  clock.mockRestore();
  expect(events).toBe("store 1 in 1");
});

// Defaults

test("by default a lone plant waits for a turn of the event loop, and for no timer", async () => {
  expect(await groupCommit(memoryStore()).add(FERN)).toBe("added");
});

test("without setImmediate a lone plant waits for a timer of zero", async () => {
  using _ = withoutSetImmediate();
  let outcome: AddOutcome | undefined;
  void groupCommit(memoryStore())
    .add(FERN)
    .then((added) => (outcome = added));
  await promisesSettled();
  expect(outcome).toBeUndefined();
  jest.advanceTimersByTime(1);
  await promisesSettled();
  expect(outcome).toBe("added");
});

test("an option that is undefined has its default", async () => {
  const { store, batch } = deferredStore();
  const options = { queueLimit: undefined, queueBytes: undefined, timeoutMs: undefined, maxInFlight: undefined };
  const commits = groupCommit(store, { ...options, defer: undefined, onCommit: undefined });
  const outcomes = [commits.add(FERN), commits.add(MOSS)];
  const { plants, timeoutMs, end } = await batch(0);
  expect({ plants, timeoutMs }).toEqual({ plants: [FERN, MOSS], timeoutMs: 5_000 });
  end(["added", "present"]);
  expect(await Promise.all(outcomes)).toEqual(["added", "present"]);
});
function withoutSetImmediate(): Disposable {
  const { setImmediate } = globalThis;
  Reflect.deleteProperty(globalThis, "setImmediate");
  return { [Symbol.dispose]: () => void Object.assign(globalThis, { setImmediate }) };
}

// A real database

describe("with real timers, over SQLite", () => {
  beforeEach(() => void jest.useRealTimers());

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
});

const CLIENTS = 1_000;

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

const FERN: NewPlant = { id: 1n, name: "Fern" };
const MOSS: NewPlant = { id: 2n, name: "Moss" };

function rejection(promise: Promise<AddOutcome>): Promise<unknown> {
  return promise.then(
    (outcome) => {
      throw new Error(`Expected a rejection, got "${outcome}"`);
    },
    (error: unknown) => error,
  );
}

/**
 * What a test does, in words separated by "; ":
 * - `add 1 2`: adds plants with these ids;
 * - `turn`: one turn of the event loop; `turns`: until nothing waits for one any more;
 * - `tick 3`: three milliseconds pass;
 * - `end added conflict`: the oldest batch in flight comes back, by default with every plant added; `end-last`: the newest;
 * - `fail`: the oldest batch in flight fails;
 * - `drain 500`: drains for so many milliseconds;
 * - `size`, `timers`, `waiting`: reports how many plants have no outcome, timers run, functions wait for a turn.
 */
type Action = string;

/**
 * What happened then, in the order of events, separated by "; ": `store 1 2`, with `in 100` if a `timeoutMs` is given;
 * `1 added`; `1 not stored` and `1 unknown` for the two messages of `storage_unavailable`; `1 queue_full`; `drained`.
 */
type Events = string;

/** `action → events`: what a test does, and what happens then. */
type Step = string;

/** A group commit with fake timers, whose commits end, and whose turns come, when an action says so. */
function timeline(options: GroupCommitOptions = {}) {
  const events: string[] = [];
  const { store, batches } = deferredStore();
  const turns = manualTurns();
  const add = (...[plants, { timeoutMs }]: Parameters<typeof store.add>) => {
    const ids = plants.map(({ id }) => id).join(" ");
    events.push(`store ${ids}${options.timeoutMs === undefined ? "" : ` in ${timeoutMs}`}`);
    const returned = store.add(plants, { timeoutMs });
    inFlight.push(batches.at(-1) as DeferredBatch);
    return returned;
  };
  const inFlight: DeferredBatch[] = [];
  const commits = groupCommit({ ...store, add }, { defer: turns.defer, ...options });

  function addOne(plant: NewPlant): void {
    commits.add(plant).then(
      (outcome) => events.push(`${plant.id} ${outcome}`),
      (error: PlantStoreError) => events.push(`${plant.id} ${wordFor(error)}`),
    );
  }

  const end = (batch: DeferredBatch | undefined, words: readonly string[]) =>
    batch?.end(words.length > 0 ? (words as StoreOutcome[]) : batch.plants.map(() => "added"));
  const actions: Readonly<Record<string, (...words: string[]) => unknown>> = {
    add: (...ids) => ids.forEach((id) => addOne({ id: BigInt(id), name: `plant ${id}` })),
    turn: () => turns.turn(),
    turns: () => turns.run(),
    tick: (ms) => jest.advanceTimersByTime(Number(ms)),
    end: (...words) => end(inFlight.shift(), words),
    "end-last": (...words) => end(inFlight.pop(), words),
    fail: () => inFlight.shift()?.fail(new Error("out of order")),
    drain: (ms) => void commits.drain(Number(ms)).then(() => events.push("drained")),
    size: () => events.push(`size ${commits.size()}`),
    timers: () => events.push(`timers ${jest.getTimerCount()}`),
    waiting: () => events.push(`waiting ${turns.waiting()}`),
  };
  return {
    addOne,
    /** Does what is written, and returns what happened. */
    async after(written: Action): Promise<Events> {
      for (const action of written.split("; ")) {
        const [name = "", ...words] = action.split(" ");
        await actions[name]?.(...words);
        await promisesSettled();
      }
      return events.splice(0).join("; ");
    },
  };
}

function wordFor({ code, message }: PlantStoreError): string {
  if (code !== "storage_unavailable") return code ?? message;
  if (message === "storage did not take the plant in time; it is not stored, send it again") return "not stored";
  return message === "storage did not finish in time; the plant may or may not be stored, send it again"
    ? "unknown"
    : message;
}

/** Turns of the event loop that come when the test says so. */
function manualTurns() {
  const waiting: (() => void)[] = [];

  async function turn(): Promise<void> {
    for (const run of waiting.splice(0)) run();
    await promisesSettled();
  }

  return {
    defer: (run: () => void) => void waiting.push(run),
    /** How many functions wait for the next turn. */
    waiting: () => waiting.length,
    /** One turn: runs what waits now, then lets promises settle. */
    turn,
    /** Turns until nothing waits any more. */
    async run(): Promise<void> {
      await promisesSettled();
      while (waiting.length > 0) await turn();
    },
  };
}
