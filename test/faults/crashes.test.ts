import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import { SYNCHRONOUS_NORMAL } from "./mutations.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("kill -9 under load, again and again, loses, invents and changes no plant", async () => {
  const seed = printedSeed("kill -9");
  expect(printed(await crashes({ times: scaled(5, 100), seed, power: false }))).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses under load lose, invent and change no plant", async () => {
  const seed = printedSeed("power loss");
  expect(printed(await crashes({ times: scaled(5, 60), seed, power: true }))).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses under load lose acknowledged plants with synchronous=NORMAL", async () => {
  const seed = printedSeed("power loss with synchronous=NORMAL");
  using copy = mutant(SYNCHRONOUS_NORMAL);
  const { lost } = printed(await crashes({ times: scaled(2, 10), seed, power: true, program: copy.program }));
  expect(lost).toBeGreaterThan(0);
});
