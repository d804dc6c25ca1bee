import { expect, spyOn, test } from "bun:test";

import { memoryStore } from "../../src/database/memory.ts";
import type { PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { AppOptions } from "../../src/http/app.ts";
import type { CompletedRequest, ObservedRequest } from "../../src/http/observer.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { fern, ivy, returned } from "../support/plants.ts";
import { promisesSettled } from "../support/promises_settled.ts";
import { readError, readPlant } from "../support/responses.ts";

/** An app, and what its observer was told. */
function watchedApp(options: Partial<AppOptions> = {}) {
  const responses: CompletedRequest[] = [];
  const errors: { code: string; reason: string | undefined; requestId: string }[] = [];
  const observer = {
    onError: ({ code, reason }: PlantStoreError, { requestId }: ObservedRequest) =>
      void errors.push({ code, reason, requestId }),
    onResponse: (answered: CompletedRequest) => void responses.push(answered),
  };

  return { app: testApp({ observer, ...options }), responses, errors };
}

test.each([
  "0af7651916cd43dd8448eb211c80319c",
  "01JD2Z6Q0T4V9W",
  "a",
  "x".repeat(128),
  "Root=1-67891233-abcdef",
])("a sane X-Request-Id is kept: %s", async (id) => {
  const { app, responses } = watchedApp();
  const response = await app.fetch(postPlant(fern(), { "x-request-id": id }));
  expect(response.headers.get("x-request-id")).toBe(id);
  expect(responses.map(({ requestId }) => requestId)).toEqual([id]);
});

test.each(["", "two words", '"quoted"', "x".repeat(129), "a\tb", "é", "<script>"])(
  "any other X-Request-Id is replaced: %p",
  async (id) => {
    const { app } = watchedApp();
    const response = await app.fetch(postPlant(fern(), { "x-request-id": id }));
    expect(response.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  },
);

test("the observer is told method, path, status and error of every response, and no path that a client made up", async () => {
  const { app, responses } = watchedApp();
  await app.fetch(postPlant(fern()));
  await app.fetch(new Request("http://localhost/plants?access_token=secret", { method: "PATCH" }));
  await app.fetch(new Request("http://localhost/secret"));
  await app.fetch(new Request("http://a/livez"));
  await app.fetch(new Request("http://localhost/livez", { headers: { host: "a#b" } }));

  expect(responses.map(({ method, path, status, error }) => [method, path, status, error])).toEqual(
    [
      ["POST", "/plants", 200, undefined],
      ["PATCH", "/plants", 405, 4051],
      ["GET", "other", 404, 4041],
      ["GET", "/livez", 200, undefined],
      ["GET", "/livez", 400, 4003],
    ],
  );

  for (const { durationMs } of responses) expect(durationMs).toBeGreaterThan(0);
  expect(new Set(responses.map(({ requestId }) => requestId)).size).toBe(responses.length);
});

test("the observer is told whose token a request came with, if it was accepted, even for too little", async () => {
  const { app, responses } = watchedApp();
  const secret = "unknown-token-0123";
  await app.fetch(postPlant(fern()));
  await app.fetch(postPlant("{"));
  await app.fetch(postPlant(fern(), { authorization: `Bearer ${secret}` }));
  await app.fetch(new Request("http://localhost/livez"));
  const { app: other, responses: refused } = watchedApp({
    authenticate: () => ({
      ok: true,
      scopes: new Set(["metrics"]),
      subject: "gardener",
      issuer: "https://id.example.org/",
    }),
  });
  await other.fetch(postPlant(fern()));

  const callers = [...responses, ...refused].map(({ status, caller }) => [
    status,
    caller?.subject,
    caller?.issuer,
  ]);
  expect(callers).toEqual([
    [200, "static:1", undefined],
    [400, "static:1", undefined],
    [401, undefined, undefined],
    [200, undefined, undefined],
    [403, "gardener", "https://id.example.org/"],
  ]);
  expect(JSON.stringify(responses)).not.toContain(secret);
  expect(JSON.stringify(responses)).not.toContain(TOKEN);
});

test("the observer is told of a bad Host, and why credentials were refused, but not the credentials", async () => {
  const { app, errors } = watchedApp();
  const bad: Record<string, string | null>[] = [
    { host: "a#b" },
    { authorization: "Bearer unknown-token-0123" },
    { authorization: "Basic unknown-token-0123" },
    { authorization: null },
  ];
  const requestIds: (string | null)[] = [];

  for (const headers of bad) {
    const response = await app.fetch(postPlant(fern(), headers));
    requestIds.push(response.headers.get("x-request-id"));
  }

  expect(errors.map(({ code, reason }) => [code, reason])).toEqual([
    ["malformed_request", undefined],
    ["invalid_credentials", "unknown"],
    ["missing_credentials", "another scheme"],
    ["missing_credentials", undefined],
  ]);
  expect<unknown>(errors.map(({ requestId }) => requestId)).toEqual(requestIds);
  expect(JSON.stringify(errors)).not.toContain("unknown-token-0123");
});

test.each<[how: string, fail: () => never]>([
  [
    "throw",
    () => {
      throw THROWN;
    },
  ],
  ["reject with", () => Promise.reject(THROWN) as never],
])(
  "what functions of the program %s is printed, and takes no response with it",
  async (_, fail) => {
    using print = spyOn(console, "error").mockImplementation(() => {});
    const app = testApp({
      plants: groupCommit(memoryStore(), { onCommit: fail }),
      clientAddress: fail,
      observer: {
        onError: fail,
        onResponse({ clientAddress }) {
          clientAddress();
          return fail();
        },
      },
      isShuttingDown: fail,
    });

    const stored = await app.fetch(postPlant(fern(), { "x-request-id": "request-1" }));
    expect(await readPlant(stored)).toEqual({ status: 200, body: returned(fern()) });
    const taken = await app.fetch(postPlant(ivy(), { "x-request-id": "request-2" }));
    expect(await readError(taken)).toMatchObject({ status: 409, error: 4091 });

    await promisesSettled();
    const called = ["clientAddress", "observer.onResponse", "isShuttingDown"];
    expect(print.mock.calls).toEqual([
      ["`onCommit` threw:", THROWN],
      ...called.map((name) => [`Request request-1: \`${name}\` threw:`, THROWN]),
      ["`onCommit` threw:", THROWN],
      ...["observer.onError", ...called].map((name) => [
        `Request request-2: \`${name}\` threw:`,
        THROWN,
      ]),
    ]);
  },
);

const THROWN = new Error("the log is closed");
