import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { mutant, programOf } from "../support/mutant.ts";
import { printedSeed } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import { FREQUENT_CHECKPOINTS, SYNCHRONOUS_NORMAL } from "./mutations.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("kill -9 of one and of both of two servers on a file loses, invents and changes no plant", async () => {
  const seed = printedSeed("two servers, kill -9");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await crashes({ times: 20, seed, power: false, servers: 2, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers on a file lose, invent and change no plant", async () => {
  const seed = printedSeed("two servers, power loss");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await crashes({ times: 20, seed, power: true, servers: 2, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers lose acknowledged plants with synchronous=NORMAL", async () => {
  using bug = programOf(SYNCHRONOUS_NORMAL);
  const report = await crashes({ times: 5, power: true, servers: 2, ...bug });
  expect(printed(report).lost).toBeGreaterThan(0);
});
