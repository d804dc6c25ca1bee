import { expect, jest, test } from "bun:test";

import { accepted, refused, type Verdict } from "../../src/auth/authenticate.ts";
import type { PlantStoreError } from "../../src/errors.ts";
import { postPlant, testApp, TOKEN } from "../support/app.ts";
import { MALFORMED_CREDENTIALS, OTHER_SCHEMES } from "../support/cases.ts";
import { fern } from "../support/plants.ts";
import { readError } from "../support/responses.ts";

const FERN = fern();

test("authenticate() is asked for exactly the token, with every character that one can have", async () => {
  const token = "AZaz09-._~+/==";
  const { app, asked } = appThatAsks(accepted("gardener"));
  expect((await app.fetch(postPlant(FERN, { authorization: `bearer  ${token}` }))).status).toBe(
    200,
  );
  expect(asked).toEqual([token]);
});

test("bad credentials of every kind get the same bytes, which do not quote them; malformed ones never reach authenticate()", async () => {
  const { app, asked } = appThatAsks(refused("for a test"));
  const malformed = MALFORMED_CREDENTIALS.map(([, authorization]) => authorization);
  const responses = new Set<string>();

  for (const authorization of [...malformed, "Bearer unknown", `Bearer ${TOKEN}`]) {
    const response = await app.fetch(postPlant(FERN, { authorization, "x-request-id": "same" }));
    responses.add(JSON.stringify([response.status, [...response.headers], await response.text()]));
  }

  expect([...responses]).toEqual([expect.stringMatching(/^\[401,/)]);
  expect([...responses].join()).not.toContain(TOKEN);
  expect(asked).toEqual(["unknown", TOKEN]);
});

test("credentials of another scheme get the same bytes as none, without an error code, and never reach authenticate()", async () => {
  const { app, asked } = appThatAsks(accepted("gardener"));
  const responses = new Set<string>();

  for (const authorization of [null, "", ...OTHER_SCHEMES.map(([, value]) => value)]) {
    const response = await app.fetch(postPlant(FERN, { authorization, "x-request-id": "same" }));
    responses.add(JSON.stringify([response.status, [...response.headers], await response.text()]));
  }

  expect([...responses]).toEqual([expect.stringMatching(/^\[401,.*realm=\\"plant-store\\""\]/)]);
  expect([...responses].join()).not.toContain("error=");
  expect(asked).toEqual([]);
});

test("GET /metrics answers 403 to a token without the scope `metrics`, and 200 to one that has it alone", async () => {
  const get = () =>
    new Request("http://localhost:3000/metrics", { headers: { authorization: `Bearer ${TOKEN}` } });
  expect(
    await readError(await appThatAsks(accepted("gardener", ["write"])).app.fetch(get())),
  ).toEqual({
    status: 403,
    error: 4031,
    message: 'the token does not have the required scope "metrics"',
  });
  expect((await appThatAsks(accepted("gardener", ["metrics"])).app.fetch(get())).status).toBe(200);
});

test("each of many concurrent requests waits for the verdict on its own token", async () => {
  const verdicts = [
    accepted("gardener", ["write"]),
    accepted("gardener", ["metrics"]),
    accepted("gardener", []),
    refused("for a test"),
  ] as const;
  const authenticate = async (token: string) =>
    verdicts[Number(token.at(-1))] ?? refused("unknown");
  const app = testApp({ authenticate });
  const requests = Array.from({ length: 100 }, (_, i) =>
    app.fetch(postPlant(fern({ id: i }), { authorization: `Bearer token${i % 4}` })),
  );
  const statuses = (await Promise.all(requests)).map(({ status }) => status);

  expect(statuses).toEqual(Array.from({ length: 100 }, (_, i) => [200, 403, 403, 401][i % 4] ?? 0));
});

test("if authenticate() never settles, the response is 503 with Retry-After after ten seconds", async () => {
  jest.useFakeTimers();
  const onError = jest.fn();
  const observer = { onError, onResponse() {} };
  try {
    const app = testApp({ authenticate: () => new Promise(() => {}), observer });
    const response = app.fetch(postPlant(FERN));
    await Promise.resolve();
    jest.advanceTimersByTime(10_000);
    expect(await readError(await response)).toEqual({
      status: 503,
      error: 5031,
      message: "the token was not validated in time; send the request again later",
    });
    expect(onError.mock.calls).toMatchObject([[{ reason: "not validated in time" }, {}]]);
  } finally {
    jest.useRealTimers();
  }
});

test.each<[string, Verdict, reason: string, scope: string]>([
  [
    "names the scope that the operation needs",
    accepted("gardener", ["metrics"]),
    'the token does not have the required scope "write"',
    ', scope="write"',
  ],
  [
    "names the scope in the words of the token's issuer",
    {
      ...accepted("gardener", []),
      lacks: { what: 'the required scope "plants:write"', scope: "plants:write" },
    },
    'the token does not have the required scope "plants:write"',
    ', scope="plants:write"',
  ],
  [
    "names no scope if none would help",
    { ...accepted("gardener", []), lacks: { what: "a listed subject" } },
    "the token does not have a listed subject",
    "",
  ],
])("a 403 %s, in its message, its challenge and the reason for the log", async (_, ...expected) => {
  const [verdict, reason, scope] = expected;
  const reasons: (string | undefined)[] = [];
  const observer = {
    onError: (error: PlantStoreError) => void reasons.push(error.reason),
    onResponse() {},
  };
  const app = testApp({ authenticate: () => verdict, observer });
  const response = await app.fetch(postPlant(FERN));

  expect(response.headers.get("www-authenticate")).toBe(
    `Bearer realm="plant-store", error="insufficient_scope"${scope}`,
  );
  expect(await readError(response)).toEqual({ status: 403, error: 4031, message: reason });
  expect(reasons).toEqual([reason]);
});

/** An app that accepts tokens with this verdict, and the tokens that it was asked about. */
function appThatAsks(verdict: Verdict) {
  const asked: string[] = [];
  const authenticate = (token: string) => {
    asked.push(token);
    return verdict;
  };
  return { app: testApp({ authenticate }), asked };
}
