import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { skipsShim } from "../support/shim.ts";
import { writeErrors } from "./write_errors.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsShim()).each([
  ["ENOSPC", true, [3, 45]],
  ["EIO", true, [45]],
  ["EIO", false, [45]],
] as const)(
  "%s of a write (lasting: %p) stops no server, and is over when it is over",
  async (errno, lasting, numbers) => {
    const seed = printedSeed(errno);
    const report = await writeErrors({ numbers, seed, errno, lasting });
    expect(printed(report)).toEqual(INTACT);
    // Else the numbers are past the end of a run, and nothing was tried.
    expect(report.faults).toBe(numbers.length);
  },
);
