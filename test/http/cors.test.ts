import { expect, test } from "bun:test";

import { postPlant, testApp } from "../support/app.ts";
import { fern } from "../support/plants.ts";
import { readError } from "../support/responses.ts";

const ORIGIN = "https://app.example.org";

const EXPOSED = "x-request-id, retry-after, www-authenticate, allow";

const ASKED = "access-control-request-headers";

const app = () => testApp({ corsOrigins: [ORIGIN, "http://localhost:5173"] });

function preflight(path: string, headers: Record<string, string> = {}): Request {
  return new Request(`http://localhost:3000${path}`, {
    method: "OPTIONS",
    headers: { origin: ORIGIN, "access-control-request-method": "POST", ...headers },
  });
}

test("a preflight of a known origin is answered 204 without credentials, and names Authorization", async () => {
  const request = preflight("/plants", {
    [ASKED]: "authorization,baggage,content-type,sentry-trace",
  });
  const { status, headers } = await app().fetch(request);

  expect([status, Object.fromEntries(headers)]).toEqual([
    204,
    {
      "access-control-allow-origin": ORIGIN,
      "access-control-allow-methods": expect.stringMatching(/\bPOST$/),
      "access-control-allow-headers": "authorization,baggage,content-type,sentry-trace",
      "access-control-expose-headers": EXPOSED,
      "access-control-max-age": "7200",
      "x-content-type-options": "nosniff",
      "x-request-id": expect.any(String),
      vary: "access-control-request-headers, origin",
    },
  ]);
});

test.each([
  ["no headers", null],
  ["what are not names of headers", "authorization; x"],
  ["too many headers", "x-one,".repeat(200)],
])("a preflight that asks for %s is told of the usual ones", async (_what, asked) => {
  const request = preflight("/plants", asked === null ? {} : { [ASKED]: asked });
  const { headers } = await app().fetch(request);
  expect(headers.get("access-control-allow-headers")).toBe(
    "authorization, content-type, x-request-id",
  );
});

test("a preflight with a Content-Length closes its connection: a proxy may have dropped the framing of a body", async () => {
  const response = await app().fetch(preflight("/plants", { "content-length": "0" }));
  expect([response.status, response.headers.get("connection")]).toEqual([204, "close"]);
  expect((await app().fetch(preflight("/plants"))).headers.get("connection")).toBeNull();
});

test.each([
  ["an unknown origin", "https://evil.example.org"],
  ["an origin in other letters", "https://APP.example.org"],
  ["the origin of a file", "null"],
])("a preflight of %s is 405, as without CORS", async (_what, origin) => {
  const response = await app().fetch(preflight("/plants", { origin }));
  expect([
    response.headers.get("access-control-allow-origin"),
    response.headers.get("vary"),
  ]).toEqual([null, "origin"]);
  expect(response.headers.get("allow")).toEndWith("POST");
  expect(await readError(response)).toMatchObject({ status: 405, error: 4051 });
});

test("OPTIONS is 405 if it is not a preflight, 404 to an unknown path and 400 without a valid Host, and the page may read it", async () => {
  const options = new Request("http://localhost:3000/plants", {
    method: "OPTIONS",
    headers: { origin: ORIGIN },
  });

  for (const [request, status] of [
    [options, 405],
    [preflight("/nowhere"), 404],
    [preflight("/plants", { host: "two, hosts" }), 400],
  ] as const) {
    const response = await app().fetch(request);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
    expect((await readError(response)).status).toBe(status);
  }
});

test.each([
  [200, {}],
  [415, { "content-type": "text/plain" }],
  [401, { authorization: null }],
])("a page of a known origin may read a response of %d", async (status, headers) => {
  const response = await app().fetch(postPlant(fern(), { origin: ORIGIN, ...headers }));
  expect(response.status).toBe(status);
  expect(Object.fromEntries(response.headers)).toMatchObject({
    "access-control-allow-origin": ORIGIN,
    "access-control-expose-headers": EXPOSED,
    "x-request-id": expect.stringMatching(/^[0-9a-f-]{36}$/),
    vary: "origin",
  });
});

test("responses to no origin or an unknown one are as without CORS, except for Vary", async () => {
  for (const origin of [null, "https://evil.example.org"]) {
    const { status, headers } = await app().fetch(postPlant(fern(), { origin }));
    const cors = [...headers.keys()].filter((name) => name.startsWith("access-control-"));
    expect({ status, cors, vary: headers.get("vary") }).toEqual({
      status: 200,
      cors: [],
      vary: "origin",
    });
  }
});

test("with no origins set, responses have no header of CORS", async () => {
  const response = await testApp().fetch(preflight("/plants"));
  expect([response.status, response.headers.get("vary")]).toEqual([405, null]);
  expect([...response.headers.keys()].filter((name) => name.startsWith("access-control-"))).toEqual(
    [],
  );
});
