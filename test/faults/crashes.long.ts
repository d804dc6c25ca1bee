import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT } from "../support/ledger.ts";
import { mutant } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import { FREQUENT_CHECKPOINTS, SYNCHRONOUS_NORMAL } from "./mutations.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.each([
  ["kill -9 of one and of both of", false],
  ["power losses of", true],
])("%s two servers on a file: no plant is lost, invented or changed", async (_, power) => {
  if (power && skipsShim()) return;
  using copy = mutant(FREQUENT_CHECKPOINTS);
  expect(await crashes({ times: scaled(2, 20), power, servers: 2, program: copy.program })).toEqual(
    INTACT,
  );
});

test.skipIf(skipsShim())("the power loss notices synchronous=NORMAL", async () => {
  using copy = mutant(SYNCHRONOUS_NORMAL);
  const options = { times: scaled(3, 10), power: true, program: copy.program };
  const { lost, changed } = await crashes(options);
  expect(lost + changed).toBeGreaterThan(0);
});
