import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT } from "../support/ledger.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { range, scaled } from "../support/scale.ts";
import { simulate } from "./simulation.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

// Each seed that fails is printed: SIMULATION_SEED runs that one alone.
const { SIMULATION_SEED } = process.env;

test("group commit and lanes lose, invent and change no plant, whatever the database does and when", async () => {
  const first = printedSeed("simulation") % 1_000_000_000;
  const seeds = SIMULATION_SEED === undefined ? range(first, first + scaled(20, 5_000) - 1) : [Number(SIMULATION_SEED)];
  const sum = { acknowledged: 0, unavailable: 0, retries: 0, reconnections: 0 };
  const failed: object[] = [];
  for (const seed of seeds) {
    const ended = await simulate(seed).catch((error: unknown) => ({ seed, error: String(error) }));
    if ("error" in ended) {
      failed.push(ended);
      continue;
    }
    const { verdict, wrongConflicts, latestMs, ...counts } = ended;
    for (const name of ["acknowledged", "unavailable", "retries", "reconnections"] as const) sum[name] += counts[name];
    const isGood = Bun.deepEquals(verdict, INTACT) && wrongConflicts === 0 && latestMs < 2;
    if (!isGood) failed.push({ seed, verdict, wrongConflicts, latestMs });
  }
  console.log(`| simulation | ${seeds.length} seeds | ${JSON.stringify(sum)} | failed ${failed.length} |`);
  expect(failed).toEqual([]);
});

test("the same seed has the same end", async () => {
  expect(await simulate(7)).toEqual(await simulate(7));
});

test("a second statement that locks no row acknowledges, for some seed, what no standby has", async () => {
  let lost = 0;
  for (const seed of range(1, scaled(400, 2_000))) {
    lost += (await simulate(seed, { locksLosers: false })).verdict.lost;
    if (lost > 0) break;
  }
  expect(lost).toBeGreaterThan(0);
});
