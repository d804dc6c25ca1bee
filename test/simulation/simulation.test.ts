import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { range, scaled } from "../support/scale.ts";
import { simulate } from "./simulate.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("group commit and the pool lose, invent and change no plant, whatever the database does and when", async () => {
  // Each seed that fails is printed: with it as TEST_SEED, it is the first one.
  const first = printedSeed("simulation") % 1_000_000_000;
  const seeds = range(first, first + scaled(20, 3_000) - 1);
  const sum = { acknowledged: 0, unavailable: 0, retries: 0, reconnections: 0 };
  const failed: object[] = [];

  for (const seed of seeds) {
    try {
      const { counts, ...ended } = await simulate(seed);
      for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += counts[name];
      const isGood =
        Bun.deepEquals(ended.verdict, INTACT) && ended.wrongConflicts === 0 && ended.latestMs < 2;
      if (!isGood) failed.push({ seed, ...ended });
    } catch (error) {
      failed.push({ seed, error: String(error) });
    }
  }

  console.log(
    `| simulation | ${seeds.length} seeds | ${JSON.stringify(sum)} | failed ${failed.length} |`,
  );
  expect(failed).toEqual([]);
});

test("the same seed gives the same result", async () => {
  expect(await simulate(7)).toEqual(await simulate(7));
});

test("if the second statement locks no row, some seed acknowledges what no standby has", async () => {
  let lost = 0;
  for (const seed of range(1, scaled(400, 2_000))) {
    lost += (await simulate(seed, { locksLosers: false })).verdict.lost;
    if (lost > 0) break;
  }
  expect(lost).toBeGreaterThan(0);
});
