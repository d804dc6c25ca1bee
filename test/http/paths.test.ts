import { expect, test } from "bun:test";

import { SCOPES } from "../../src/auth/authenticate.ts";
import { pathFinder, PATHS } from "../../src/http/paths.ts";
import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { testApp, TOKEN } from "../support/app.ts";

/** Each method of each path, and who may use it. */
const OPERATIONS = Object.entries(PATHS).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, access]) => ({ path, method, access })),
);

test("these paths are public, and no others", () => {
  const open = OPERATIONS.filter(({ access }) => access === "public");
  expect(open.map(({ path, method }) => `${method} ${path}`)).toEqual([
    "GET /livez",
    "GET /readyz",
    "GET /",
    "GET /swagger",
    "GET /swagger/",
    "GET /swagger/json",
    "GET /swagger/page.css",
    "GET /swagger/start.js",
    "GET /swagger/swagger-ui.css",
    "GET /swagger/swagger-ui-bundle.js",
    "GET /swagger/favicon-32x32.png",
  ]);
});

test.each(OPERATIONS)(
  "$method $path, which is for $access, says so to a request without credentials",
  async ({ path, method, access }) => {
    const app = testApp({ docsFiles: swaggerUi });
    const { status } = await app.fetch(new Request(`http://localhost${path}`, { method }));
    if (access === "public") expect([200, 302]).toContain(status);
    else expect(status).toBe(401);
  },
);

test("each scope of tokens is for some operation", () => {
  const needed = new Set(OPERATIONS.map(({ access }) => access));
  expect(SCOPES.filter((scope) => !needed.has(scope))).toEqual([]);
});

test("each path of the table has a route, and its methods are those of Allow", async () => {
  const app = testApp({ docsFiles: swaggerUi });
  for (const [path, methods] of Object.entries(PATHS)) {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const request = new Request(`http://localhost${path}`, { method: "PATCH", headers });
    const { status, headers: answered } = await app.fetch(request);
    const allowed = Object.keys(methods).flatMap((name) =>
      name === "GET" ? [name, "HEAD"] : name,
    );
    expect(status).toBe(405);
    expect(answered.get("allow")?.split(", ").toSorted()).toEqual(allowed.toSorted());
  }
});

test("a route that is not in the table does not exist: the app cannot be created with it", () => {
  expect(() => pathFinder([{ path: "/plants/:id/leaves", method: "GET" }])).toThrow(
    "Cannot create the app: GET /plants/{id}/leaves is not in PATHS",
  );
  expect(() => pathFinder([{ path: "/plants", method: "DELETE" }])).toThrow(
    "Cannot create the app: DELETE /plants is not in PATHS",
  );
});

test("a path of the table without a route does not exist either", () => {
  expect(pathFinder([])("/plants")).toBeUndefined();
});

test("a parameter is one segment, and the pattern is what metrics and traces get", () => {
  const routes = [
    { path: "/plants", method: "POST" },
    { path: "/plants/:id", method: "GET" },
    { path: "/v1.0/:a/x/:b", method: "GET" },
  ];
  const find = pathFinder(routes, {
    "/plants": { POST: "write" },
    "/plants/{id}": { GET: "metrics" },
    "/v1.0/{a}/x/{b}": { GET: "public" },
  });

  expect(find("/plants/7")).toEqual({
    pattern: "/plants/{id}",
    access: new Map([
      ["GET", "metrics"],
      ["HEAD", "metrics"],
    ]),
    allow: "GET, HEAD",
    withQuery: new Set(),
  });
  expect(find("/plants")?.pattern).toBe("/plants");
  expect(find("/v1.0/1/x/%2F")?.pattern).toBe("/v1.0/{a}/x/{b}");
  for (const path of ["/plants/", "/plants/7/", "/plants/7/8", "/v1x0/1/x/2", "/plants/{id}/x"])
    expect(find(path)).toBeUndefined();
});
