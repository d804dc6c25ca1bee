import { expect, setDefaultTimeout, test } from "bun:test";
import { TOKEN } from "../support/client.ts";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { goodRequest, wireBytes } from "../support/requests.ts";
import { scaled } from "../support/scale.ts";
import { makeDisk } from "../support/shim.ts";
import { fuzz, sendFuzzCases } from "./fuzz.ts";
import type { FuzzCase } from "./fuzz_cases.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("requests of every kind get the response of section 2, and the plants of a 200 are in the file", async () => {
  const result = await fuzz({ cases: scaled(1_000, 120_000), seed: printedSeed("fuzz") });
  expect(result.unexpected).toEqual([]);
  expect(printed(result)).toEqual(INTACT);
});

test("the fuzz expects a 200 where damage made GET / of a request, and nowhere else", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const request = { ...goodRequest(TOKEN, '{"id": 1, "name": "Fern"}'), method: "GET" };
  const plant = { id: 1n, name: "Fern" };
  const damaged = ["/", "/?lants", "/plants/.."].map((path): FuzzCase => {
    return { bytes: wireBytes({ ...request, path }), expected: "any", plant };
  });
  const whole = { bytes: wireBytes({ ...request, path: "/" }), expected: "405/4051", plant };
  const { unexpected, counts } = await sendFuzzCases(server.url, [...damaged, whole].values());
  expect(counts).toEqual({ "200 of GET /": 4 });
  expect(unexpected).toEqual([expect.stringContaining("expected 405/4051, got 200 of GET /")]);
});
