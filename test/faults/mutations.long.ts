import { expect, setDefaultTimeout, test } from "bun:test";
import { printed, type Report } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { failingTests, mutant, type Mutation } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import { drains } from "./drain.ts";
import {
  ACKNOWLEDGE_EARLY,
  CHECKPOINT_INSIDE_SQLITE,
  CONTINUE_AFTER_FAILED_FSYNC,
  IGNORE_REPLACED_FILE,
  REPLACE_ON_CONFLICT,
  STOP_WITHOUT_GRACE,
  SWAP_OUTCOMES,
  SYNCHRONOUS_NORMAL,
  TRUST_CONTENT_LENGTH,
  TRUST_PAGE_CACHE,
} from "./mutations.ts";
import { syncErrors } from "./sync_errors.ts";
import { unsynced } from "./unsynced.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** The program with a bug; gone at the end of the test. */
function programOf(bug: readonly Mutation[]) {
  const copy = mutant(bug);
  return { program: copy.program, seed: printedSeed("mutant"), [Symbol.dispose]: () => copy[Symbol.dispose]() };
}

/** What an experiment finds: its verdict, or the message of the error that it ended with. */
async function outcomeOf(experiment: Promise<Report>): Promise<unknown> {
  return experiment.then(printed, (error: unknown) => String(error));
}

test.skipIf(skipsShim())("the failed fsync notices a response of 200 before the commit", async () => {
  using bug = programOf(ACKNOWLEDGE_EARLY);
  const verdict = printed(await syncErrors({ numbers: [9, 10, 11], ...bug }));
  expect(verdict.lost).toBeGreaterThan(0);
});

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

test.skipIf(skipsShim())("the failed fsync notices a server that goes on after it", async () => {
  using bug = programOf(CONTINUE_AFTER_FAILED_FSYNC);
  expect(await outcomeOf(syncErrors({ numbers: [9, 10, 11, 12], ...bug }))).toContain("The program still runs");
});

test.skipIf(skipsShim())("the failed fsync notices a checkpoint that hides it", async () => {
  using bug = programOf(CHECKPOINT_INSIDE_SQLITE);
  const numbers = Array.from({ length: 100 }, (_, index) => index + 10);
  expect(await outcomeOf(syncErrors({ numbers, heavy: true, ...bug }))).toContain("The program still runs");
});

test.skipIf(skipsShim()).each(["killed", "failed"] as const)(
  "the power loss notices a server that takes the page cache for the disk (%s)",
  async (how) => {
    using bug = programOf(TRUST_PAGE_CACHE);
    const verdict = printed(await unsynced({ how, more: 0, ...bug }));
    expect(verdict.lost).toBeGreaterThan(0);
  },
);

test("the drain notices a server that stops listening right at the signal", async () => {
  using bug = programOf(STOP_WITHOUT_GRACE);
  expect(await outcomeOf(drains({ times: 20, ...bug }))).toMatch(/"unanswered":[1-9]/);
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
