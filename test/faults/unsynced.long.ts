import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT } from "../support/ledger.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { unsynced } from "./unsynced.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.skipIf(skipsShim()).each([
  { how: "killed", more: 0 },
  { how: "failed", more: 0 },
  { how: "failed", more: 8 },
] as const)(
  "what a server leaves unsynced is synced before the next one acknowledges it or anything else ($how, $more more)",
  async (end) => {
    for (let run = 0; run < scaled(1, 10); run++) expect(await unsynced(end)).toEqual(INTACT);
  },
);

test.skipIf(skipsShim())(
  "after a failed fsync no server starts beside a process that reads what it left",
  async () => {
    expect(await unsynced({ how: "failed", more: 8, reads: true })).toEqual(INTACT);
  },
);
