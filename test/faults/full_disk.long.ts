import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { writeErrors } from "./write_errors.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);
const numbers = Array.from({ length: 400 }, (_, index) => index + 1);

test.skipIf(skipsShim()).each([true, false])(
  "ENOSPC of whichever write (lasting: %p) stops no server, and is over when it is over",
  async (lasting) => {
    const seed = printedSeed("ENOSPC");
    expect(printed(await writeErrors({ numbers, seed, errno: "ENOSPC", lasting }))).toEqual(INTACT);
  },
);
