import { expect, test } from "bun:test";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { drains } from "./drain.ts";

test("SIGTERM under 64-way load, again and again, leaves no request without a response", async () => {
  const seed = printedSeed("drain");
  expect(printed(await drains({ times: 60, seed }))).toEqual(INTACT);
}, 600_000);
