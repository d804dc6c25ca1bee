import { expect, setDefaultTimeout, test } from "bun:test";

import { failingTests, mutant } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
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

test.each([
  [
    "kill -9 notices swapped outcomes",
    SWAP_OUTCOMES,
    { times: scaled(2, 5), power: false },
    ["lost", "changed"],
  ],
  [
    "kill -9 notices a replaced plant",
    REPLACE_ON_CONFLICT,
    { times: scaled(2, 5), power: false },
    ["changed"],
  ],
  [
    "the power loss notices synchronous=NORMAL",
    SYNCHRONOUS_NORMAL,
    { times: scaled(3, 10), power: true },
    ["lost"],
  ],
  [
    "the power loss of two servers notices synchronous=NORMAL",
    SYNCHRONOUS_NORMAL,
    { times: scaled(2, 5), power: true, servers: 2 },
    ["lost"],
  ],
] as const)("%s", async (_, bug, options, numbers) => {
  if (options.power && skipsShim()) return;
  using copy = mutant(bug);
  const verdict = await crashes({ ...options, program: copy.program });
  expect(numbers.some((number) => verdict[number] > 0)).toBe(true);
});

test.each([
  [
    "a limit that is read from Content-Length only",
    TRUST_CONTENT_LENGTH,
    "test/http/body.test.ts",
    "a byte more than the limit",
  ],
  [
    "outcomes that are swapped inside a batch",
    SWAP_OUTCOMES,
    "test/group_commit/group_commit.test.ts",
    "",
  ],
  [
    "a plant that is replaced by another one",
    REPLACE_ON_CONFLICT,
    "test/database/sqlite/sqlite_database.test.ts",
    "",
  ],
  [
    "a file that is replaced",
    IGNORE_REPLACED_FILE,
    "test/faults/storage.long.ts",
    "replaced|unlinked",
  ],
] as const)("the tests notice %s", async (_, bug, file, name) => {
  using copy = mutant(bug);
  const failingWithout = await failingTests(ROOT, file, name);
  const noticed = (await failingTests(copy.path, file, name)).filter(
    (test) => !failingWithout.includes(test),
  );
  console.log(`Failed, as they should:\n${noticed.map((test) => `  ${test}`).join("\n")}`);
  expect(noticed).not.toBeEmpty();
});
