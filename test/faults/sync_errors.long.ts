import { expect, setDefaultTimeout, test } from "bun:test";

import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, type Ledger, type Verdict, worse } from "../support/ledger.ts";
import {
  limited,
  type LoadReport,
  printedSeed,
  randomFrom,
  randomPlants,
  startLoad,
} from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { TEXT } from "../support/plants.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, start } from "../support/program.ts";
import { range, scaled } from "../support/scale.ts";
import { type Disk, skipsShim } from "../support/shim.ts";
import { stop } from "./health.ts";
import { CHECKPOINT_INSIDE_SQLITE, FREQUENT_CHECKPOINTS } from "./mutations.ts";
import { eachFault, onFreePort, settle, urlOf } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** From one fault to the next that is tried; small plants have fewer fsyncs. */
const STEP = scaled(15, 1);
const SMALL_STEP = scaled(8, 1);

test.skipIf(skipsShim()).each([
  ["a failed fsync", false],
  ["a failed fsync of a checkpoint", true],
])("%s ends the server, and nothing it acknowledged is lost", async (_, heavy) => {
  const numbers = range(1, 300, heavy ? STEP : SMALL_STEP);
  const { verdict, faults } = await syncErrors({ numbers, heavy });
  expect(verdict).toEqual(INTACT);
  expect(faults).toBeGreaterThanOrEqual(scaled(2, 3));
});

test.skipIf(skipsShim()).each(["killSync", "killPage"] as const)(
  "neither a kill nor a power loss in any step of a checkpoint loses a plant (%s)",
  async (fault) => {
    using copy = mutant(FREQUENT_CHECKPOINTS);
    const { verdict, faults } = await syncErrors({
      numbers: range(1, 150, STEP),
      fault,
      program: copy.program,
    });
    expect(verdict).toEqual(INTACT);
    expect(faults).toBeGreaterThanOrEqual(scaled(3, 20));
  },
);

test.skipIf(skipsShim())("the failed fsync notices a checkpoint that hides it", async () => {
  using copy = mutant(CHECKPOINT_INSIDE_SQLITE);
  const { program } = copy;
  const faults = { numbers: range(10, 109), heavy: true, program, endLimitMs: 10_000 };
  await expect(syncErrors(faults)).rejects.toThrow("The program still runs");
});

test.skipIf(skipsShim())(
  "a failed fsync in one of two servers on a file loses no plant of either",
  async () => {
    using copy = mutant(FREQUENT_CHECKPOINTS);
    const { verdict, faults } = await twoServerSyncErrors(range(1, 40, STEP), copy.program);
    expect(verdict).toEqual(INTACT);
    expect(faults).toBeGreaterThanOrEqual(scaled(1, 2));
  },
);

/** Which fsyncs to fail, one in each run. */
interface SyncErrorOptions {
  /** The numbers to try. They stop early at the first one that no run gets to. */
  readonly numbers: Iterable<number>;
  /** What happens at that number. @default {"failSync"} */
  readonly fault?: "failSync" | "killSync" | "killPage";
  /**
   * Whether the plants are large and many, so that the WAL fills and a checkpoint comes. @default
   * {false}
   */
  readonly heavy?: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
  /** How long a server may take to end. @default that of {@linkcode exitCodeOf} */
  readonly endLimitMs?: number;
}

/**
 * Fails the n-th fsync of a server's life for each n, and holds the server to ending, and the file
 * to the ledger.
 */
function syncErrors({
  numbers,
  fault = "failSync",
  heavy = false,
  program,
  endLimitMs,
}: SyncErrorOptions) {
  const experiment = `${heavy ? "checkpoints too, " : ""}${fault}`;
  const seed = printedSeed(experiment);

  return eachFault(experiment, numbers, async (disk, ledger, number) => {
    await using server = start(
      onFreePort(disk.server({ faults: { power: true, [fault]: number }, program })),
    );
    const plants = plantsOf(seed + number, { heavy, plants: fault === "failSync" ? 60 : 150 });
    const load = await loadOf(server, ledger, plants, heavy ? 32 : 8);

    if (fault === "failSync")
      await requireEnd(server, load, () => disk.isRaised("hit"), number, endLimitMs);
    else {
      // A server that did not die may do so while it closes the database.
      await (disk.isRaised("hit") ? exitCodeOf(server.child) : stop(server));
      if (server.child.signalCode !== "SIGKILL") expect(server.child.exitCode).toBe(0);
    }

    return await judgeAfter(disk, ledger, { losesPower: true });
  });
}

/** 350 plants of 15 pages each are more than the WAL gathers before a checkpoint. */
function plantsOf(
  seed: number,
  { heavy, plants }: { heavy: boolean; plants: number },
): () => NewPlant | undefined {
  const next = randomPlants(randomFrom(seed), { again: heavy ? 0 : 0.1 });
  const large = { [TEXT]: "x".repeat(60_000) };
  return heavy ? limited(() => ({ ...next(), ...large }), 350) : limited(next, plants);
}

/**
 * Fails the n-th fsync of one of two servers on a file, for each n. That one must end. The other
 * serves on until the kernel reports the failure to it, at its own next fsync of the file: then it
 * must end, too.
 */
function twoServerSyncErrors(numbers: Iterable<number>, program: readonly string[]) {
  const experiment = "a failed fsync, two servers on a file";
  const seed = printedSeed(experiment);

  const run = async (disk: Disk, ledger: Ledger, failSync: number) => {
    const next = randomPlants(randomFrom(seed + failSync), { again: 0.3 });
    await using one = start(
      onFreePort(disk.server({ faults: { power: true, failSync }, program })),
    );
    await using other = start(onFreePort(disk.server({ faults: { power: true }, program })));

    // Both listen before either is loaded, and each gets as many plants: the other could store all
    // of them otherwise.
    await Promise.all([urlOf(one), urlOf(other)]);
    const [load, otherLoad] = await Promise.all(
      [one, other].map((each) => loadOf(each, ledger, limited(next, 120), 6)),
    );

    // The fault may also come at the end, when the WAL is moved.
    await requireEnd(one, load, () => disk.isRaised("hit"), failSync);
    await requireEnd(other, otherLoad, () => disk.isRaised("told"), failSync);

    // Every second time the next server comes before the power loss, and finds what the page cache
    // has.
    return await judgeAfter(disk, ledger, { losesPower: failSync % 2 === 0 });
  };

  return eachFault(experiment, numbers, run, { endsEarly: false });
}

/** What the page cache has, then what the disk has, then what a next server makes of it. */
async function judgeAfter(
  disk: Disk,
  ledger: Ledger,
  { losesPower }: { losesPower: boolean },
): Promise<Verdict> {
  const verdicts = [ledger.judge(disk.database)];
  if (losesPower) disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  await settle(disk.server({ faults: { power: true } }), ledger);
  disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  return verdicts.reduce(worse);
}

type Program = ReturnType<typeof start>;

/**
 * Loads a server until the first response about the fault: a request without a response was
 * accepted before it. Resolves to nothing if the server ends before it listens.
 */
async function loadOf(
  program: Program,
  ledger: Ledger,
  next: () => NewPlant | undefined,
  connections: number,
) {
  const url = await urlOf(program);
  return url === undefined
    ? undefined
    : startLoad({ url, connections, ledger, next, endOn: ["503/5032", "503/5033"] }).end;
}

/**
 * Ends a server that its fault has not ended. One that had a failed fsync, or was told of one, must
 * end by itself, with an exit code of its own. No request may be left without a true response.
 */
async function requireEnd(
  { child, stderr }: Program,
  load: LoadReport | undefined,
  isFailed: () => boolean,
  number: number,
  endLimitMs?: number,
): Promise<void> {
  if (!isFailed()) child.kill("SIGTERM");
  const exitCode = await exitCodeOf(child, endLimitMs);
  const { unanswered = 0, wrong = 0, responses = {} } = load ?? {};
  const context = `fsync ${number} failed: ${JSON.stringify(responses)}\n${await stderr.end}`;
  expect({ hasFailed: exitCode !== 0, unanswered, wrong }, context).toEqual({
    hasFailed: isFailed(),
    unanswered: 0,
    wrong: 0,
  });
  expect(["200", "409/4091", "503/5032", "503/5033"], context).toEqual(
    expect.arrayContaining(Object.keys(responses)),
  );
}
