import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { range, scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { syncErrors } from "./sync_errors.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsShim())("a failed fsync ends the server, and nothing it acknowledged is lost", async () => {
  const seed = printedSeed("failed fsync");
  // Short: one while it starts, two under load.
  const numbers = scaled([4, 10, 12], range(1, 300));
  const report = await syncErrors({ numbers, seed });
  expect(printed(report)).toEqual(INTACT);
  expect(report.faults).toBeGreaterThanOrEqual(3);
});
