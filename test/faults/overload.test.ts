import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS, skipsProc } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { overload } from "./overload.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())("five times too many plants are stored or refused, in bounded memory", async () => {
  const seed = printedSeed("overload");
  const result = await overload({ queueLimit: 20, plants: 1_500, seed, restMs: 0 });
  expect(printed(result)).toEqual(INTACT);
  const { responses, unanswered, wrong } = result.load;
  expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5031"]);
  expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });
  expect(result.memory.most).toBeLessThan(100 * MEGABYTE);
});
