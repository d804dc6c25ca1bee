/**
 * What an operation of a fork needs, and no operation of this service has: a query, parameters in the path,
 * and a response that stores nothing.
 */
import { expect, test } from "bun:test";

import { Elysia, t } from "elysia";

import { staticTokens } from "../../src/auth/static_tokens.ts";
import { throwAgain } from "../../src/http/app.ts";
import { bearerGuard, type Exchange } from "../../src/http/bearer_guard.ts";
import { pathFinder } from "../../src/http/paths.ts";
import { respond } from "../../src/http/responses.ts";
import { bearer, TOKEN } from "../support/client.ts";
import { readError } from "../support/responses.ts";

const QUERY = t.Object({
  name: t.String(),
  limit: t.Optional(t.Integer({ minimum: 1, maximum: 100 })),
});

/** An app as `createApp()` makes one, with operations on beds. */
function bedsApp() {
  const exchanges = new WeakMap<Request, Exchange>();
  const fail = () => {
    throw new Error("out of order");
  };
  const app = new Elysia({ normalize: false, precompile: true })
    .onError(throwAgain)
    .use(bearerGuard(staticTokens([TOKEN]), exchanges))
    .get("/beds", ({ query }) => query, { query: QUERY })
    .post("/beds", ({ request }) => ({ url: request.url }))
    .guard({ query: QUERY }, (guarded) => guarded.get("/beds/guarded", ({ query }) => query))
    .get("/beds/:id", ({ params }) => params, { params: t.Object({ id: t.Numeric() }) })
    .get("/broken", fail)
    .post("/broken", fail)
    .get("/wrong", () => 7 as never, { response: t.String() });
  const beds = { GET: "write", POST: "write" } as const;

  return respond({
    handle: app.fetch,
    findPath: pathFinder(app.routes, {
      "/beds": beds,
      "/beds/guarded": beds,
      "/beds/{id}": beds,
      "/broken": beds,
      "/wrong": beds,
    }),
    observer: { onError() {}, onResponse() {} },
    exchanges,
    cors: undefined,
    hasUnreadBody: () => false,
    clientAddress: () => undefined,
    isShuttingDown: () => false,
  });
}

async function ask(path: string, method = "GET"): Promise<Response> {
  return bedsApp()(new Request(`http://${path}`, { method, headers: bearer() }));
}

test.each([
  ["localhost/beds?name=Fern&limit=2", { name: "Fern", limit: 2 }],
  ["localhost/beds/guarded?name=Fern", { name: "Fern" }],
  // Elysia would not find the path after a short host.
  ["a/beds?name=%26%3F", { name: "&?" }],
])("an operation with a schema of the query gets it: %s", async (path, query) => {
  const response = await ask(path);
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: query,
  });
});

test("another method of the same path gets none", async () => {
  const response = await ask("localhost/beds?name=Fern", "POST");
  expect(await response.json()).toEqual({ url: "http://localhost/beds" });
});

test.each([
  ["localhost/beds", "in the query: `name` is missing"],
  ["localhost/beds?name=Fern&limit=many", "in the query: `limit` is not valid"],
  ["localhost/beds?limit=1.5", "in the query: `name` is missing; `limit` is not valid"],
  ["localhost/beds/first", "in the path: `id` is not valid"],
  [
    "localhost/beds?name=Fern&limit=0",
    "a parameter is not valid: Expected integer to be greater or equal to 1",
  ],
])("what a schema refuses is 400, and names the field: %s", async (path, message) => {
  expect(await readError(await ask(path))).toEqual({ status: 400, error: 4002, message });
});

test.each(["GET", "HEAD"])(
  "an internal error of %s says of no plant that it may be stored",
  async (method) => {
    const response = await ask("localhost/broken", method);
    expect(response.status).toBe(500);
    const expected = JSON.stringify({ error: 5001, message: "internal error" });
    expect(response.headers.get("content-length") ?? String(expected.length)).toBe(
      String(expected.length),
    );
    if (method === "GET") expect(await response.text()).toBe(expected);
  },
);

test("an internal error of POST says so", async () => {
  expect(await readError(await ask("localhost/broken", "POST"))).toEqual({
    status: 500,
    error: 5001,
    message: "internal error; the plant may be stored, send it again",
  });
});

test("a response that its schema refuses is an internal error", async () => {
  expect(await readError(await ask("localhost/wrong"))).toMatchObject({ status: 500, error: 5001 });
});
