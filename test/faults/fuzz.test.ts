import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { fuzz } from "./fuzz.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("requests of every kind get the response of section 2, and the plants of a 200 are in the file", async () => {
  const result = await fuzz({ cases: scaled(1_000, 120_000), seed: printedSeed("fuzz") });
  expect(result.unexpected).toEqual([]);
  expect(printed(result)).toEqual(INTACT);
});
