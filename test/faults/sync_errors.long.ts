import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { range } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { syncErrors } from "./sync_errors.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.skipIf(skipsShim())("a failed fsync ends the server, and nothing it acknowledged is lost", async () => {
  const report = await syncErrors({ numbers: range(1, 300), seed: printedSeed("failed fsync") });
  expect(printed(report)).toEqual(INTACT);
  expect(report.faults).toBeGreaterThanOrEqual(3);
});

test.skipIf(skipsShim())(
  "a failed fsync of a checkpoint ends the server, and nothing it acknowledged is lost",
  async () => {
    const seed = printedSeed("failed fsync, checkpoints too");
    expect(printed(await syncErrors({ numbers: range(1, 300), seed, heavy: true }))).toEqual(INTACT);
  },
);
