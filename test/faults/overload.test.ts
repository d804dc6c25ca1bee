import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS, skipsProc } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { scaled } from "../support/scale.ts";
import { overload } from "./overload.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())("five times too many plants are stored or refused, in bounded memory", async () => {
  const seed = printedSeed("overload");
  const size = scaled(
    { queueLimit: 20, plants: 1_500, restMs: 0 },
    { queueLimit: 1_000, plants: 60_000, restMs: 2_000 },
  );
  const result = await overload({ ...size, seed });
  expect(printed(result)).toEqual(INTACT);
  const { responses, unanswered, wrong } = result.load;
  expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5031"]);
  expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });
  expect(result.memory.most).toBeLessThan(scaled(100, 500) * MEGABYTE);
  // What the load took comes back.
  expect(result.memory.after).toBeLessThan(100 * MEGABYTE);
});
