import { expect, setDefaultTimeout, test } from "bun:test";
import { printed } from "../support/ledger.ts";
import { failingTests, mutant, programOf } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import {
  IGNORE_REPLACED_FILE,
  REPLACE_ON_CONFLICT,
  SWAP_OUTCOMES,
  SYNCHRONOUS_NORMAL,
  TRUST_CONTENT_LENGTH,
} from "./mutations.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("kill -9 notices outcomes that are swapped inside a batch", async () => {
  using bug = programOf(SWAP_OUTCOMES);
  const verdict = printed(await crashes({ times: 5, power: false, ...bug }));
  expect(verdict.lost + verdict.changed).toBeGreaterThan(0);
});

test("kill -9 notices a plant that is replaced by another one", async () => {
  using bug = programOf(REPLACE_ON_CONFLICT);
  const verdict = printed(await crashes({ times: 5, power: false, ...bug }));
  expect(verdict.changed).toBeGreaterThan(0);
});

test.skipIf(skipsShim())("the power loss notices synchronous=NORMAL", async () => {
  using bug = programOf(SYNCHRONOUS_NORMAL);
  const verdict = printed(await crashes({ times: 10, power: true, ...bug }));
  expect(verdict.lost).toBeGreaterThan(0);
});

test.each([
  [
    "a limit that is read from Content-Length only",
    TRUST_CONTENT_LENGTH,
    "test/http/body.test.ts",
    "a byte more than the limit",
  ],
  ["outcomes that are swapped inside a batch", SWAP_OUTCOMES, "test/group_commit/group_commit.test.ts", ""],
  ["a plant that is replaced by another one", REPLACE_ON_CONFLICT, "test/database/sqlite/database.test.ts", ""],
  ["a file that is replaced", IGNORE_REPLACED_FILE, "test/faults/storage.long.ts", "replaced|unlinked"],
] as const)("the tests notice %s", async (_, bug, file, name) => {
  using copy = mutant(bug);
  const failingWithout = await failingTests(ROOT, file, name);
  const noticed = (await failingTests(copy.path, file, name)).filter((test) => !failingWithout.includes(test));
  console.log(`Failed, as they should:\n${noticed.map((test) => `  ${test}`).join("\n")}`);
  expect(noticed).not.toBeEmpty();
});
