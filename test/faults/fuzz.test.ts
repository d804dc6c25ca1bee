import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { fuzzCases, sendFuzzCases } from "./fuzz.ts";
import { startOnDisk, stop } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("requests of every kind get the promised response, and plants with a 200 are in the file", async () => {
  const cases = scaled(1_000, 120_000);
  await using server = await startOnDisk();
  const source = fuzzCases(printedSeed("fuzz")).take(cases);
  const { ledger, unexpected, counts, taken } = await sendFuzzCases(server.url, source);

  expect(unexpected).toEqual([]);
  expect(taken.filter((plant) => !ledger.hasRival(plant))).toEqual([]);
  expect(await stop(server)).toBe(0);

  const size = `${cases} cases, ${ledger.acknowledgements()} acknowledged, ${JSON.stringify(counts)}`;
  expect(printed("fuzz", size, ledger.judge(server.disk.database))).toEqual(INTACT);
});
