import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { fuzz } from "../faults/fuzz.ts";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// What is cheaper because it does less is no measure: the program by hand has to pass the program's own fuzz.
for (const file of ["by_hand.ts", "by_hand_worker.ts"]) {
  test(`${file}, strictly, answers 1,000 requests of every kind as section 2 says, and stores what it answered`, async () => {
    const program = [process.execPath, join(import.meta.dir, file), "strictly"];
    const result = await fuzz({ cases: 1_000, seed: printedSeed(file), program });
    expect(result.unexpected).toEqual([]);
    expect(printed(result)).toEqual(INTACT);
  });
}
