import { expect, spyOn, test } from "bun:test";

import {
  type AddOutcome,
  type AppOptions,
  createApp,
  groupCommit,
  memoryStore,
  memoryTokens,
  readiness,
  tokenCache,
} from "../../src/mod.ts";
import { parseConfig } from "../../src/settings/settings.ts";
import { postPlant, testApp } from "../support/app.ts";
import { fern, jsonOf } from "../support/plants.ts";

// A program in JavaScript, or one that reads a variable which is not set, gives what the types
// forbid.

const TIMER = "expected 1 to 2147483647";
const COUNT = `expected 1 to ${Number.MAX_SAFE_INTEGER}`;

/** Every number of the module: its name, what takes it, and what it may be. */
const NUMBERS: readonly (readonly [
  name: string,
  use: (value: number) => unknown,
  expected: string,
])[] = [
  ["queueLimit", (queueLimit) => groupCommit(memoryStore(), { queueLimit }), COUNT],
  ["queueBytes", (queueBytes) => groupCommit(memoryStore(), { queueBytes }), COUNT],
  ["maxInFlight", (maxInFlight) => groupCommit(memoryStore(), { maxInFlight }), COUNT],
  ["timeoutMs", (timeoutMs) => groupCommit(memoryStore(), { timeoutMs }), TIMER],
  ["maxBodyBytes", (maxBodyBytes) => app({ maxBodyBytes }), COUNT],
  ["timeoutMs", (timeoutMs) => readiness(async () => {}, { timeoutMs }), TIMER],
];

const NO_NUMBERS = [NaN, Infinity, -Infinity, 0, -1, 2 ** 53, "5" as never, null as never];

test.each(NUMBERS)("a wrong `%s` is refused by what takes it: case %#", (name, use, expected) => {
  for (const value of NO_NUMBERS) {
    const given = typeof value === "string" ? `"${value}"` : value;
    expect(() => use(value)).toThrow(new TypeError(`Cannot use \`${name}\` ${given}: ${expected}`));
  }
  use(2 ** 31 - 1);
  if (expected === TIMER) expect(() => use(2 ** 31)).toThrow(TypeError);
});

test.each<[what: string, use: (options: object) => unknown]>([
  ["createApp()", app],
  ["groupCommit()", (options) => groupCommit(memoryStore(), options)],
  ["readiness()", (options) => readiness(async () => {}, options)],
  ["tokenCache()", (options) => tokenCache(memoryTokens(), options)],
])("%s refuses an option that does not exist: it may be a misspelled one", async (_what, use) => {
  const call = async () => use({ timeoutms: 1 });
  await expect(call()).rejects.toThrow(
    new TypeError("Cannot use `timeoutms`: there is no such option"),
  );
});

test("every option may be undefined, and has its default then", async () => {
  app({
    observer: undefined,
    maxBodyBytes: undefined,
    corsOrigins: undefined,
    clientAddress: undefined,
    docsFiles: undefined,
    renderMetrics: undefined,
    isShuttingDown: undefined,
  });
  readiness(async () => {}, { maxAgeMs: undefined, timeoutMs: undefined });
  const clocks = { now: undefined, monotonic: undefined };
  await tokenCache(memoryTokens(), { staticTokens: undefined, maxAgeMs: undefined, ...clocks });
});

const PROGRAM = parseConfig({});

test("groupCommit() has the program's QUEUE_LIMIT and REQUEST_TIMEOUT_MS by default", async () => {
  const given: number[] = [];
  const held = Promise.withResolvers<AddOutcome[]>();
  const plants = groupCommit({
    ...memoryStore(),
    add(batch, { timeoutMs }) {
      given.push(batch.length, timeoutMs);
      return held.promise;
    },
  });

  const all = Array.from({ length: PROGRAM.queueLimit }, (_, id) => fern({ id }));
  const outcomes = Promise.all(all.map((plant) => plants.add(plant)));
  await expect(plants.add(fern({ id: -1 }))).rejects.toMatchObject({ code: "queue_full" });

  held.resolve(all.map(() => "added"));
  expect(new Set(await outcomes)).toEqual(new Set(["added"]));
  // The store has nine tenths of it, and the plants have waited already.
  const [count, timeoutMs = 0] = given;
  expect(count).toBe(PROGRAM.queueLimit);
  expect(timeoutMs).toBeWithin(0.45 * PROGRAM.requestTimeoutMs, 0.9 * PROGRAM.requestTimeoutMs + 1);
});

test("createApp() has the program's MAX_BODY_BYTES by default", async () => {
  const statusOf = async (bytes: number) =>
    (await testApp().fetch(postPlant(jsonOf(fern()).padEnd(bytes)))).status;

  expect(await statusOf(PROGRAM.maxBodyBytes)).toBe(200);
  expect(await statusOf(PROGRAM.maxBodyBytes + 1)).toBe(413);
});

test.each([undefined, Promise.resolve(memoryStore()), { probe() {} }])(
  "groupCommit() refuses what is no store, as one that is not awaited: %p",
  (store) => {
    expect(() => groupCommit(store as never)).toThrow(
      new TypeError(
        "Cannot create the queue: `store.add` must be a function; is the store awaited?",
      ),
    );
  },
);

test.each([NaN, Infinity, -1, 2 ** 31])(
  "readiness() refuses a verdict that is fresh for %d ms",
  (maxAgeMs) => {
    const message = `Cannot use \`maxAgeMs\` ${maxAgeMs}: expected 0 to 2147483647`;
    expect(() => readiness(async () => {}, { maxAgeMs })).toThrow(new TypeError(message));
    readiness(async () => {}, { maxAgeMs: 0 });
  },
);

test.each([NaN, -1, 0, "5" as never])("tokenCache() refuses the age %p", async (maxAgeMs) => {
  const cache = tokenCache(memoryTokens(), { maxAgeMs });
  await expect(cache).rejects.toThrow(/^Cannot use `maxAgeMs` .*: expected 1 to Infinity$/);
});

test.each([NaN, undefined as never, "soon" as never])(
  "drain(%p) is refused, and the queue goes on",
  async (timeoutMs) => {
    const plants = groupCommit(memoryStore());
    const message = `Cannot use \`timeoutMs\` ${timeoutMs}: expected a number`;
    await expect(plants.drain(timeoutMs)).rejects.toThrow(new TypeError(message));
    expect(await plants.add(fern())).toBe("added");
  },
);

test.each([Infinity, 2 ** 31, Number.MAX_SAFE_INTEGER])(
  "drain(%d) waits as long as a timer can",
  async (timeoutMs) => {
    const held = Promise.withResolvers<AddOutcome[]>();
    const plants = groupCommit({ ...memoryStore(), add: () => held.promise });
    const outcome = plants.add(fern());
    using setTimeout = spyOn(globalThis, "setTimeout");
    const drained = plants.drain(timeoutMs);

    // A timer with more fires after a millisecond.
    expect(setTimeout.mock.calls.map(([, delayMs]) => delayMs)).toContain(2 ** 31 - 1);

    held.resolve(["added"]);
    expect(await outcome).toBe("added");

    await drained;
  },
);

test.each([
  ["https://app.example.org"],
  [["*"]],
  [["https://app.example.org/"]],
  [["https://app.example.org/shop"]],
  [["https://APP.example.org"]],
  [["https://app.example.org:443"]],
  [["app.example.org"]],
  [["null"]],
  [["https://app.example.org", undefined]],
])("createApp() refuses corsOrigins %j, which no browser would match", (corsOrigins) => {
  const message = `Cannot use \`corsOrigins\` ${JSON.stringify(corsOrigins)}: expected a list of origins`;
  expect(() => app({ corsOrigins: corsOrigins as string[] })).toThrow(message);
});

test("createApp() takes the origins of pages and of apps in a web view", () => {
  app({
    corsOrigins: [
      "https://app.example.org",
      "http://localhost:5173",
      "http://[::1]:8080",
      "capacitor://localhost",
    ],
  });
});

test("tokenCache() refuses the static tokens that staticTokens() refuses", async () => {
  const cache = tokenCache(memoryTokens(), { staticTokens: ["x"] });
  const message = "Cannot use static tokens: token 1 has fewer than 16 characters";
  await expect(cache).rejects.toThrow(new TypeError(message));
});

function app(options: Partial<AppOptions>) {
  return createApp({
    plants: groupCommit(memoryStore()),
    ready: async () => {},
    authenticate: () => ({ ok: false, reason: "unknown" }),
    ...options,
  });
}
