import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS, skipsProc } from "../support/program.ts";
import { overload } from "./overload.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())("5,000 clients of a queue for 1,000 are answered, and the memory comes back", async () => {
  const seed = printedSeed("overload");
  const result = await overload({ queueLimit: 1_000, plants: 60_000, seed, restMs: 2_000 });
  expect(printed(result)).toEqual(INTACT);
  const { responses, unanswered, wrong } = result.load;
  expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5031"]);
  expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });
  expect(result.memory.most).toBeLessThan(500 * MEGABYTE);
  expect(result.memory.after).toBeLessThan(100 * MEGABYTE);
});
