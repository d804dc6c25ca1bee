import { expect, spyOn, test } from "bun:test";
import { status } from "elysia";
import { memoryStore } from "../../src/database/memory.ts";
import { accepted, ACCEPTED, refused, type Verdict } from "../../src/auth/authenticate.ts";
import { staticTokens } from "../../src/auth/static_tokens.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import { PlantStoreError } from "../../src/errors.ts";
import type { Observer } from "../../src/http/observer.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../src/database/database.ts";
import { readError, readPlant } from "../support/responses.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { deferredStore } from "../support/deferred_store.ts";

const FERN = { id: 1, name: "Fern", tag: "indoor" };

/** An app of what `createApp()` cannot do without. */
function leastApp(plants: AppOptions["plants"] = groupCommit(memoryStore())) {
  return createApp({ plants, ready: async () => {}, authenticate: staticTokens([TOKEN]) });
}

test("createApp() takes bodies of up to 65,536 bytes by default", async () => {
  const app = leastApp();
  const padded = (bytes: number) => JSON.stringify(FERN).padEnd(bytes);
  expect(await readPlant(await app.fetch(postPlant(padded(65_536))))).toMatchObject({ status: 200 });
  expect(await readError(await app.fetch(postPlant(padded(65_537))))).toEqual({
    status: 413,
    error: 4131,
    message: "the body must have at most 65536 bytes",
  });
});

test("createApp() prints internal errors by default, with the request's id and the cause, and nothing else", async () => {
  using print = spyOn(console, "error").mockImplementation(() => {});
  const cause = new Error("the disk is gone");
  const app = leastApp({ add: () => Promise.reject(cause) });
  await app.fetch(postPlant("{"));
  const response = await app.fetch(postPlant(FERN, { "x-request-id": "request-1" }));
  expect(await readError(response)).toMatchObject({ status: 500, error: 5001 });
  expect(print.mock.calls).toEqual([["Request request-1 failed:", cause]]);
});

test.each([
  [{}, "`plants.add` must be a function"],
  [{ plants: {} }, "`plants.add` must be a function"],
  [{ plants: { add() {} } }, "`ready` must be a function"],
  [{ plants: { add() {} }, ready() {} }, "`authenticate` must be a function"],
  [
    { plants: { add() {} }, ready() {}, authenticate() {}, maxBodyBytes: Number.NaN },
    "`maxBodyBytes` must be a number",
  ],
  [{ plants: { add() {} }, ready() {}, authenticate() {}, maxBodyBytes: 0 }, "`maxBodyBytes` must be a number"],
])("createApp(%j) is refused, and says why", (options, reason) => {
  expect(() => createApp(options as unknown as AppOptions)).toThrow(`Cannot create the app: ${reason}`);
});

// Paths and methods

test.each(["http://localhost:3000", "http://a"])("a query on %s is not even parsed", async (origin) => {
  const request = at(`${origin}/plants?id=2&name=Ivy`);
  expect(await readPlant(await testApp().fetch(request))).toMatchObject({ status: 200 });
  // Elysia parses the query of this URL.
  expect(new URL(request.url).search).toBe("");
});

function at(url: string, body = JSON.stringify(FERN)): Request {
  return new Request(url, { method: "POST", headers: postPlant(FERN).headers, body });
}

// The order of checks

/** A token without the scope that a plant needs. */
const SCRAPER = "scraper";

const VERDICTS = new Map([
  [TOKEN, ACCEPTED],
  [SCRAPER, accepted(["metrics"])],
]);

/** One flaw a check, in the order of the checks; a request that has all of a check's and the later ones' fails there. */
const FLAWS: readonly (readonly [check: string, error: number, flaw: Partial<Flaws>])[] = [
  ["path", 4041, { path: "/nowhere" }],
  ["method", 4051, { method: "PUT" }],
  ["credentials", 4012, { authorization: "Bearer unknown" }],
  ["scope", 4031, { authorization: `Bearer ${SCRAPER}` }],
  ["media type", 4151, { contentType: "text/plain" }],
  ["size", 4131, { body: `\xFF{${" ".repeat(70_000)}` }],
  ["JSON", 4001, { body: "{not json" }],
  ["shape", 4002, { body: '{"id": "1"}' }],
  ["admission", 5033, { body: '{"id": 1, "name": "different"}' }],
];

interface Flaws {
  path: string;
  method: string;
  authorization: string;
  contentType: string;
  body: string;
}

test.each(FLAWS.map(([check, error], index) => [check, error, index] as const))(
  "the check of %s comes before all that follow it",
  async (_check, error, index) => {
    const plants = groupCommit(memoryStore());
    const app = testApp({ plants, authenticate: (token) => VERDICTS.get(token) ?? refused("unknown") });
    await app.fetch(postPlant(FERN));
    await plants.drain(1_000);
    expect(await readError(await app.fetch(flawed(index)))).toMatchObject({ error });
  },
);

/** The first flaw that names a part counts: the later checks' are hidden behind it. */
function flawed(from: number): Request {
  const flaws = FLAWS.slice(from).map(([, , flaw]) => flaw);
  const good = {
    path: "/plants",
    method: "POST",
    authorization: `Bearer ${TOKEN}`,
    contentType: "application/json",
    body: "",
  };
  const { path, method, authorization, contentType, body }: Flaws = Object.assign(good, ...flaws.toReversed());
  const headers = { authorization, "content-type": contentType };
  return new Request(`http://localhost:3000${path}`, { method, headers, body });
}

test("POST /plants reads nothing of the body before it knows the credentials", async () => {
  let pulls = 0;
  const body = new ReadableStream<Uint8Array>({ pull: () => void pulls++ }, { highWaterMark: 0 });
  const verdict = Promise.withResolvers<Verdict>();
  const response = testApp({ authenticate: () => verdict.promise }).fetch(postPlant(body));
  verdict.resolve(refused("for a test"));
  expect(await readError(await response)).toMatchObject({ status: 401, error: 4012 });
  expect(pulls).toBe(0);
});

// Health

test("GET /livez does not ask the store", async () => {
  const app = testApp({ ready: () => new Promise(() => {}) });
  const response = await app.fetch(new Request("http://localhost:3000/livez"));
  expect(await readPlant(response)).toMatchObject({ status: 200 });
});

test("GET /readyz answers 503 in the error shape while no plant could be stored, and 200 again when one could", async () => {
  let works = false;
  const ready = async () => {
    if (!works) throw new PlantStoreError("storage_unavailable", "storage is full; send the plant again later");
  };
  const app = testApp({ ready });
  const response = await app.fetch(new Request("http://localhost:3000/readyz"));
  expect(await readError(response)).toEqual({
    status: 503,
    error: 5032,
    message: "storage is full; send the plant again later",
  });
  works = true;
  expect(await readPlant(await app.fetch(new Request("http://localhost:3000/readyz")))).toMatchObject({ status: 200 });
});

test("HEAD /readyz answers 503 without a body while no plant could be stored", async () => {
  const { probe: ready } = failing(new PlantStoreError("storage_unavailable"));
  const response = await testApp({ ready }).fetch(new Request("http://localhost:3000/readyz", { method: "HEAD" }));
  expect(response.status).toBe(503);
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(await response.text()).toBe("");
});

test("while the server shuts down every response asks to close its connection, whether it began before or not", async () => {
  const { store, batch } = deferredStore();
  let isShuttingDown = false;
  const app = testApp({ plants: groupCommit(store), isShuttingDown: () => isShuttingDown });
  const first = app.fetch(postPlant(FERN));
  const { end } = await batch(0);
  isShuttingDown = true;
  end(["added"]);
  const responses = [await first, await app.fetch(new Request("http://localhost:3000/livez"))];
  expect(responses.map(({ status, headers }) => [status, headers.get("connection")])).toEqual([
    [200, "close"],
    [200, "close"],
  ]);
});

function failing(error: unknown): PlantStore {
  const fail = () => Promise.reject(error);
  return { add: fail, probe: fail };
}

// Internal errors

const FAULTS: readonly (readonly [string, unknown])[] = [
  ["an error that has a status", Object.assign(new Error("tea"), { status: 418 })],
  ["an error that makes its own response", Object.assign(new Error("tea"), { toResponse: () => new Response("leak") })],
  ["an error whose code says PARSE", Object.assign(new Error("tea"), { code: "PARSE" })],
  ["an error whose code says VALIDATION", Object.assign(new Error("tea"), { code: "VALIDATION", type: "body" })],
  // As some database drivers and HTTP clients name theirs.
  ["an error whose code says NOT_FOUND", Object.assign(new Error("tea"), { code: "NOT_FOUND" })],
  ["a status of Elysia's own", status(418, "tea")],
  ["a response", new Response("leak")],
  ["a string", "tea"],
];

test.each(FAULTS)(
  "%s, thrown by the store, by authenticate() or by ready(), is an internal error",
  async (_, cause) => {
    const thrower = () => Promise.reject(cause);
    for (const [request, options] of [
      [postPlant(FERN), { plants: groupCommit(failing(cause)) }],
      [postPlant(FERN), { authenticate: thrower }],
      [new Request("http://localhost:3000/readyz"), { ready: thrower }],
    ] as const) {
      const { app, faults } = appWithFaults(options);
      const response = await app.fetch(request);
      expect(await readError(response)).toMatchObject({ status: 500, error: 5001 });
      expect(faults).toEqual([{ cause, requestId: response.headers.get("x-request-id") ?? "" }]);
    }
  },
);

function appWithFaults(options: Partial<AppOptions>) {
  const faults: { cause: unknown; requestId: string }[] = [];
  const onError: Observer["onError"] = ({ cause }, { requestId }) => void faults.push({ cause, requestId });
  return { app: testApp({ observer: { onError, onResponse() {} }, ...options }), faults };
}
