import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT } from "../support/ledger.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent(
  "kill -9 under load, again and again, loses, invents and changes no plant",
  async () => {
    expect(await crashes({ times: scaled(5, 100), power: false })).toEqual(INTACT);
  },
);

test.concurrent.skipIf(skipsShim())(
  "power losses under load lose, invent and change no plant",
  async () => {
    expect(await crashes({ times: scaled(5, 60), power: true })).toEqual(INTACT);
  },
);
