import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { unsynced } from "./unsynced.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const ends = [
  { how: "killed", more: 0 },
  { how: "failed", more: 0 },
  { how: "failed", more: 8 },
] as const;

test.skipIf(skipsShim()).each(ends)(
  "what a server leaves unsynced is synced before the next one acknowledges it, or more ($how, $more more)",
  async (end) => {
    const seed = printedSeed("unsynced");
    for (const run of range(1, 10)) {
      expect(printed(await unsynced({ seed: seed + run, ...end }))).toEqual(INTACT);
    }
  },
);

test.skipIf(skipsShim())("after a failed fsync no server starts beside a process that reads what it left", async () => {
  const seed = printedSeed("unsynced, beside a reader");
  expect(printed(await unsynced({ seed, how: "failed", more: 8, reads: true }))).toEqual(INTACT);
});
