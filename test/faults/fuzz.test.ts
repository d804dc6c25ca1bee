import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { fuzz } from "./fuzz.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("2,000 requests of every kind are answered as section 2 says, and what was answered 200 is in the file", async () => {
  const result = await fuzz({ cases: 2_000, seed: printedSeed("fuzz") });
  expect(result.surprises).toEqual([]);
  expect(printed(result)).toEqual(INTACT);
});
