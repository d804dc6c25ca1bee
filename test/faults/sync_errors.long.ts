import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { syncErrors } from "./sync_errors.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);
const numbers = Array.from({ length: 300 }, (_, index) => index + 1);

test.skipIf(skipsShim())("a failed fsync, whichever it is, ends the server, and nothing is lost", async () => {
  const seed = printedSeed("failed fsync");
  expect(printed(await syncErrors({ numbers, seed }))).toEqual(INTACT);
});

test.skipIf(skipsShim())("a failed fsync of a checkpoint ends the server, and nothing is lost", async () => {
  const seed = printedSeed("failed fsync, checkpoints too");
  expect(printed(await syncErrors({ numbers, seed, heavy: true }))).toEqual(INTACT);
});
