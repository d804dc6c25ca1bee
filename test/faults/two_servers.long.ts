import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { FREQUENT_CHECKPOINTS, SYNCHRONOUS_NORMAL } from "./mutations.ts";
import { twoServerSyncErrors } from "./sync_errors.ts";
import { twoServerCrashes } from "./two_servers.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("kill -9 of one and of both of two servers on a file loses, invents and changes no plant", async () => {
  const seed = printedSeed("two servers, kill -9");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await twoServerCrashes({ times: 20, seed, power: false, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers on a file lose, invent and change no plant", async () => {
  const seed = printedSeed("two servers, power loss");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await twoServerCrashes({ times: 20, seed, power: true, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers lose acknowledged plants with synchronous=NORMAL", async () => {
  const seed = printedSeed("two servers, power loss with synchronous=NORMAL");
  using copy = mutant(SYNCHRONOUS_NORMAL);
  const report = await twoServerCrashes({ times: 5, seed, power: true, program: copy.program });
  expect(printed(report).lost).toBeGreaterThan(0);
});

test.skipIf(skipsShim())("a failed fsync in one of two servers on a file loses nothing of either", async () => {
  const seed = printedSeed("two servers, failed fsync");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const numbers = range(1, 40);
  const report = await twoServerSyncErrors({ numbers, seed, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
  expect(report.faults).toBeGreaterThanOrEqual(2);
});
