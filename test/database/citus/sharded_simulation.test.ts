import { expect, setDefaultTimeout, test } from "bun:test";

import { shardedCommit } from "../../../src/database/citus/sharded_commit.ts";
import { simulate } from "../../simulation/simulate.ts";
import { INTACT } from "../../support/ledger.ts";
import { printedSeed } from "../../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../../support/program.ts";
import { range, scaled } from "../../support/scale.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("plants spread over three databases are as safe, whatever each of them does", async () => {
  const first = printedSeed("simulation of three") % 1_000_000_000;
  for (const seed of range(first, first + scaled(5, 500) - 1)) {
    const { verdict, wrongConflicts } = await simulate(seed, {
      databases: 3,
      spread: shardedCommit,
    });
    expect({ seed, ...verdict, wrongConflicts }).toEqual({ seed, ...INTACT, wrongConflicts: 0 });
  }
});
