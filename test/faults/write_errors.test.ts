import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { range, scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { writeErrors } from "./write_errors.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const EVERY = range(1, 400);

test.skipIf(skipsShim()).each([
  ["ENOSPC", true, scaled([3, 45], EVERY)],
  ["ENOSPC", false, scaled([45], EVERY)],
  ["EIO", true, scaled([45], EVERY)],
  ["EIO", false, scaled([45], EVERY)],
] as const)(
  "%s of a write (lasting: %p) stops no server, and is over when it is over",
  async (errno, lasting, numbers) => {
    const seed = printedSeed(errno);
    const report = await writeErrors({ numbers, seed, errno, lasting });
    expect(printed(report)).toEqual(INTACT);
    // Else the numbers are past the end of a run, and nothing was tried.
    expect(report.faults).toBeGreaterThanOrEqual(Math.min(numbers.length, 45));
  },
);
