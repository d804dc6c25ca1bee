import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent("kill -9 under load, again and again, loses, invents and changes no plant", async () => {
  const seed = printedSeed("kill -9");
  expect(printed(await crashes({ times: scaled(5, 100), seed, power: false }))).toEqual(INTACT);
});

test.concurrent.skipIf(skipsShim())("power losses under load lose, invent and change no plant", async () => {
  const seed = printedSeed("power loss");
  expect(printed(await crashes({ times: scaled(5, 60), seed, power: true }))).toEqual(INTACT);
});
