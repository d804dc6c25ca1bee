import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT, type Ledger } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { LONG_TEST_TIMEOUT_MS, start } from "../support/program.ts";
import { range, scaled } from "../support/scale.ts";
import { type Disk, type Faults, skipsShim } from "../support/shim.ts";
import { requireReady, requireUnavailable, stop } from "./health.ts";
import { eachFault, onFreePort, settle, urlOf } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** How many writes a run has at most. */
const MOST_WRITES = 400;

const EVERY = range(1, MOST_WRITES, scaled(7, 1));

/** How many it has at least: some 70 to 100 were seen, fewer where batches are large. */
const LEAST_WRITES = 25;

/** With one of the four experiments on every write, and the others a write apart, none is left out. */
const everyThird = (first: number) => range(first, MOST_WRITES, scaled(21, 3));

test.skipIf(skipsShim()).each([
  ["ENOSPC", true, EVERY],
  ["ENOSPC", false, everyThird(1)],
  ["EIO", true, everyThird(2)],
  ["EIO", false, everyThird(3)],
  ["EROFS", true, range(20, scaled(20, 22))],
] as const)(
  "%s of a write (lasting: %p) stops no server, which stores again once it is over",
  async (errno, lasting, numbers) => {
    const experiment = `${errno} ${lasting ? "from the n-th write on" : "at the n-th write"}`;
    const seed = printedSeed(experiment);
    const { verdict, faults } = await eachFault(
      experiment,
      numbers,
      async (disk, ledger, number) => {
        if (lasting) disk.raise("sick");
        await runWith(disk, { failWrite: number, errno }, ledger, randomFrom(seed + number));
        return ledger.judge(disk.database);
      },
    );

    expect(verdict).toEqual(INTACT);
    // Else the numbers are past the end of a run, and nothing was tried.
    expect(faults).toBeGreaterThanOrEqual(
      numbers.filter((number) => number <= LEAST_WRITES).length,
    );
  },
);

/** Runs a server whose write fails, and holds it to answering and to coming back. */
async function runWith(
  disk: Disk,
  faults: Faults,
  ledger: Ledger,
  random: () => number,
): Promise<void> {
  const context = JSON.stringify(faults);
  await using program = start(onFreePort(disk.server({ faults })));
  const url = await urlOf(program);

  if (url === undefined) {
    // A server that cannot start says so in one line, and the next one can once the disk is well
    // again.
    expect(await program.stderr.end, context).toMatch(/^Cannot open database [^\n]*\n$/);
    expect(await program.child.exited, context).toBe(1);
    disk.clear("sick");
    return settle(disk.server(), ledger);
  }

  const next = limited(randomPlants(random), 60);
  const { responses, unanswered } = await startLoad({ url, connections: 4, ledger, next }).end;
  expect(unanswered, context).toBe(0);
  expect(["200", "409/4091", "503/5032"], context).toEqual(
    expect.arrayContaining(Object.keys(responses)),
  );

  // What is stored already needs no write, and is answered 200 also by a sick disk.
  const fresh = randomPlants(random, { again: 0 });
  const wasHit = disk.isRaised("hit");
  if (wasHit && disk.isRaised("sick")) await requireUnavailable(url, ledger, fresh());
  disk.clear("sick");
  if (wasHit) await requireReady(url, ledger, fresh);

  const exitCode = await stop(program);
  // A fault while the database is closed is told, and loses nothing: the WAL stays.
  expect(exitCode, context).toBe(wasHit === disk.isRaised("hit") ? 0 : 1);
}
