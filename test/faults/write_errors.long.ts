import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { range } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { writeErrors } from "./write_errors.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** How many writes a run has at most. */
const EVERY = range(1, 400);

/** How many it has at least: some 70 to 100 were seen, fewer where batches are large. */
const LEAST_WRITES = 25;

/** Every third write: with one of the four experiments on every write, and the others a write apart, none is left out. */
const everyThird = (first: number) => EVERY.filter((number) => number % 3 === first % 3);

test.skipIf(skipsShim()).each([
  ["ENOSPC", true, EVERY],
  ["ENOSPC", false, everyThird(1)],
  ["EIO", true, everyThird(2)],
  ["EIO", false, everyThird(3)],
] as const)(
  "%s of a write (lasting: %p) stops no server, and is over when it is over",
  async (errno, lasting, numbers) => {
    const seed = printedSeed(errno);
    const report = await writeErrors({ numbers, seed, errno, lasting });
    expect(printed(report)).toEqual(INTACT);
    // Else the numbers are past the end of a run, and nothing was tried.
    expect(report.faults).toBeGreaterThanOrEqual(numbers.filter((number) => number <= LEAST_WRITES).length);
  },
);
