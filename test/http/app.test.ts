import { expect, jest, spyOn, test } from "bun:test";
import { join } from "node:path";

import { Elysia, status } from "elysia";

import { staticTokens } from "../../src/auth/static_tokens.ts";
import { memoryStore } from "../../src/database/memory.ts";
import type * as errors from "../../src/errors.ts";
import { ERRORS, PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { AddOutcome } from "../../src/group_commit/plant_store.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import type { Observer } from "../../src/http/observer.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { mutant } from "../support/mutant.ts";
import { fern, OPTIONAL_TEXT } from "../support/plants.ts";
import { readError } from "../support/responses.ts";

const FERN = fern({ [OPTIONAL_TEXT]: "indoor" });

/** What an app needs. */
const PARTS = {
  plants: groupCommit(memoryStore()),
  ready: async () => {},
  authenticate: staticTokens([TOKEN]),
};

test("createApp() prints internal errors by default, with the request's id and the cause, and nothing else", async () => {
  using print = spyOn(console, "error").mockImplementation(() => {});
  const cause = new Error("the disk is gone");
  const app = createApp({
    plants: { add: () => Promise.reject(cause) },
    ready: async () => {},
    authenticate: staticTokens([TOKEN]),
  });
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
  [{ ...PARTS, plants: memoryStore() }, "`plants` is a store: use groupCommit(store)"],
  [{ ...PARTS, observer: { onError() {} } }, "`observer.onResponse` must be a function"],
  [{ ...PARTS, observer: { onResponse() {} } }, "`observer.onError` must be a function"],
  [{ ...PARTS, observer: null }, "`observer.onError` must be a function"],
  [{ ...PARTS, clientAddress: "127.0.0.1" }, "`clientAddress` must be a function"],
  [{ ...PARTS, renderMetrics: "" }, "`renderMetrics` must be a function"],
  [{ ...PARTS, isShuttingDown: false }, "`isShuttingDown` must be a function"],
])("createApp(%j) is refused, and says why", (options, reason) => {
  expect(() => createApp(options as unknown as AppOptions)).toThrow(
    `Cannot create the app: ${reason}`,
  );
});

test("createApp() throws where code generation is forbidden, before Elysia ends the process", () => {
  const cause = new EvalError("Code generation from strings disallowed for this context");
  const forbid = () => {
    throw cause;
  };
  using _ = spyOn(globalThis, "Function").mockImplementation(forbid as never);
  const message = "Cannot create the app: this runtime forbids code generation";
  expect(() => createApp(PARTS)).toThrow(expect.objectContaining({ message, cause }));
});

test("a query is not even parsed: Elysia would parse that of the request's URL", async () => {
  const request = new Request("http://localhost:3000/livez?id=2&name=Ivy");
  await testApp().fetch(request);
  expect(new URL(request.url).search).toBe("");
});

test("a request in a Proxy, as of h3 and Next.js, may have a query", async () => {
  const proxied = new Proxy(postPlant(FERN, {}, "http://localhost:3000"), {
    get(target, name) {
      if (name === "url") return "http://localhost:3000/plants?source=form";
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });

  expect((await testApp().fetch(proxied)).status).toBe(200);
});

// Wrong uses: only `fetch` and `handle` keep the promises of the API.

test("handle() responds as fetch() does", async () => {
  const app = testApp();
  const refused = await app.handle(postPlant(FERN, { authorization: null }));
  expect(await readError(refused)).toMatchObject({ status: 401, error: 4011 });
  expect((await app.handle(postPlant(FERN))).status).toBe(200);
});

test.each<[what: string, use: (app: ReturnType<typeof testApp>) => unknown]>([
  ["used by another app", (app) => new Elysia().use(app)],
  ["mounted as a whole", (app) => new Elysia().mount("/garden", app)],
  // @ts-expect-error It takes no more routes.
  ["extended by a route", (app) => app.get("/own", () => "own")],
  // @ts-expect-error It takes no plugin.
  ["extended by a plugin", (app) => app.use(new Elysia())],
  // @ts-expect-error It takes no group.
  ["extended by a group", (app) => app.group("/garden", (group) => group)],
  // @ts-expect-error It is not a server.
  ["started as a server", (app) => app.listen(0)],
])("an app that is %s fails at once", (_what, use) => {
  expect(() => use(testApp())).toThrow();
});

test("another app may mount fetch(), and keeps its own routes", async () => {
  const outer = new Elysia().mount("/garden", testApp().fetch).get("/own", () => "own");
  const refused = postPlant(FERN, { authorization: null }, "http://localhost:3000/garden");
  expect(await readError(await outer.handle(refused))).toMatchObject({ status: 401, error: 4011 });
  expect(await (await outer.handle(new Request("http://localhost:3000/own"))).text()).toBe("own");
});

// Health

test("no cache may keep what /livez, /readyz and /metrics say", async () => {
  for (const path of ["/livez", "/readyz", "/metrics"]) {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const response = await testApp().fetch(new Request(`http://localhost${path}`, { headers }));
    expect([path, response.status, response.headers.get("cache-control")]).toEqual([
      path,
      200,
      "no-store",
    ]);
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
  }
});

test("GET /livez does not ask whether a plant could be stored", async () => {
  const app = testApp({ ready: () => new Promise(() => {}) });
  expect((await app.fetch(new Request("http://localhost:3000/livez"))).status).toBe(200);
});

test("/readyz answers 503 in the error shape while no plant could be stored, to HEAD without a body, and 200 again when one could", async () => {
  const ready = jest.fn(async () => {});
  const app = testApp({ ready });
  const check = (method: string) =>
    app.fetch(new Request("http://localhost:3000/readyz", { method }));
  const message = "storage is full; send the plant again later";

  ready.mockRejectedValue(new PlantStoreError("storage_unavailable", message));
  expect(await readError(await check("GET"))).toEqual({ status: 503, error: 5032, message });

  const head = await check("HEAD");
  expect([head.status, head.headers.get("cache-control"), await head.text()]).toEqual([
    503,
    "no-store",
    "",
  ]);

  ready.mockResolvedValue();
  expect((await check("GET")).status).toBe(200);
});

test("while the server shuts down every response asks to close its connection, whether it began before or not", async () => {
  let isShuttingDown = false;
  const add = async () => {
    isShuttingDown = true;
    return "added" as const;
  };

  const app = testApp({ plants: { add }, isShuttingDown: () => isShuttingDown });
  const responses = [
    await app.fetch(postPlant(FERN)),
    await app.fetch(new Request("http://localhost:3000/livez")),
  ];
  expect(responses.map(({ status, headers }) => [status, headers.get("connection")])).toEqual([
    [200, "close"],
    [200, "close"],
  ]);
});

// Internal errors

const FAULTS: readonly (readonly [string, unknown])[] = [
  ["an error that has a status", Object.assign(new Error("tea"), { status: 418 })],
  [
    "an error that makes its own response",
    Object.assign(new Error("tea"), { toResponse: () => new Response("leak") }),
  ],
  ["an error whose code says PARSE", Object.assign(new Error("tea"), { code: "PARSE" })],
  [
    "an error whose code says VALIDATION",
    Object.assign(new Error("tea"), { code: "VALIDATION", type: "body" }),
  ],
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
      [postPlant(FERN), { plants: groupCommit({ add: thrower, probe: thrower }) }],
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

test("an error of a second copy of the package has its own status", async () => {
  const copy: typeof errors = await import(`../../src/errors.ts?${"copy"}`);
  const cause = new copy.PlantStoreError("storage_unavailable", "storage is full");
  expect(Object.getPrototypeOf(cause)).not.toBe(PlantStoreError.prototype);

  const app = testApp({ plants: { add: () => Promise.reject(cause) } });
  expect(await readError(await app.fetch(postPlant(FERN)))).toEqual({
    status: 503,
    error: 5032,
    message: "storage is full",
  });
});

test.each(["tea", "toString", undefined])(
  "an error that only has the name of ours, and the code %p, is internal",
  async (code) => {
    const cause = Object.assign(new Error("tea"), { name: "PlantStoreError", code });
    const { app, faults } = appWithFaults({ plants: { add: () => Promise.reject(cause) } });
    expect(await readError(await app.fetch(postPlant(FERN)))).toMatchObject({
      status: 500,
      error: 5001,
    });
    expect(faults).toMatchObject([{ cause }]);
  },
);

test.each([[undefined], [null], ["inserted"], [["added"]], [true], ["unavailable"]])(
  "add() that resolves to %j, which is not stored, is an internal error",
  async (outcome) => {
    const { app, faults } = appWithFaults({ plants: { add: async () => outcome as AddOutcome } });
    const { message } = ERRORS.internal;
    expect(await readError(await app.fetch(postPlant(FERN)))).toEqual({
      status: 500,
      error: 5001,
      message,
    });
    expect(faults).toMatchObject([
      { cause: new TypeError(`Unknown outcome of add(): ${String(outcome)}`) },
    ]);
  },
);

function appWithFaults(options: Partial<AppOptions>) {
  const faults: { cause: unknown; requestId: string }[] = [];
  const onError: Observer["onError"] = ({ cause }, { requestId }) =>
    void faults.push({ cause, requestId });
  return { app: testApp({ observer: { onError, onResponse() {} }, ...options }), faults };
}

test("a schema only documents: a limit in it refuses no plant, and no response to one that is stored", async () => {
  using copy = mutant([
    {
      file: "src/http/plants.ts",
      from: "return t.String({",
      to: "return t.String({ maxLength: 3,",
    },
  ]);
  const limited = (await import(join(copy.path, "src/http/app.ts"))) as {
    createApp: typeof createApp;
  };
  const app = limited.createApp(PARTS);
  const responses = [await app.fetch(postPlant(FERN)), await app.fetch(postPlant(FERN))];
  expect(responses.map(({ status }) => status)).toEqual([200, 200]);
});
