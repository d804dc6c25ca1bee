import { expect, setDefaultTimeout, test } from "bun:test";
import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, type Ledger, printed, type Report, type Verdict, worse } from "../support/ledger.ts";
import { limited, type LoadReport, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, start } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { type Disk, skipsShim } from "../support/shim.ts";
import { eachFault, onFreePort, settle, urlOf } from "./settle.ts";
import {
  ACKNOWLEDGE_EARLY,
  CHECKPOINT_INSIDE_SQLITE,
  CONTINUE_AFTER_FAILED_FSYNC,
  FREQUENT_CHECKPOINTS,
  SYNCHRONOUS_NORMAL,
} from "./mutations.ts";
import { mutant, outcomeOf, programOf } from "../support/mutant.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.skipIf(skipsShim())("a failed fsync ends the server, and nothing it acknowledged is lost", async () => {
  const report = await syncErrors({ numbers: range(1, 300), seed: printedSeed("failed fsync") });
  expect(printed(report)).toEqual(INTACT);
  expect(report.faults).toBeGreaterThanOrEqual(3);
});

test.skipIf(skipsShim())(
  "a failed fsync of a checkpoint ends the server, and nothing it acknowledged is lost",
  async () => {
    const seed = printedSeed("failed fsync, checkpoints too");
    expect(printed(await syncErrors({ numbers: range(1, 300), seed, heavy: true }))).toEqual(INTACT);
  },
);

test.skipIf(skipsShim()).each(["killSync", "killPage"] as const)(
  "a server that dies in any step of a checkpoint loses nothing, and a power loss there neither (%s)",
  async (fault) => {
    const seed = printedSeed(`death in a checkpoint, ${fault}`);
    using copy = mutant(FREQUENT_CHECKPOINTS);
    const report = await syncErrors({ numbers: range(1, 150), seed, fault, program: copy.program });
    expect(printed(report)).toEqual(INTACT);
    expect(report.faults).toBeGreaterThanOrEqual(20);
  },
);

// Between two pages the bug loses a plant in few of the deaths: forty may have none.
test.skipIf(skipsShim())("the death in a checkpoint notices synchronous=NORMAL", async () => {
  using bug = programOf([...FREQUENT_CHECKPOINTS, ...SYNCHRONOUS_NORMAL]);
  expect(printed(await syncErrors({ numbers: range(1, 40), fault: "killSync", ...bug })).lost).toBeGreaterThan(0);
});

test.skipIf(skipsShim())("the failed fsync notices a response of 200 before the commit", async () => {
  using bug = programOf(ACKNOWLEDGE_EARLY);
  const verdict = printed(await syncErrors({ numbers: [9, 10, 11], ...bug }));
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

test.skipIf(skipsShim())("a failed fsync in one of two servers on a file loses nothing of either", async () => {
  const seed = printedSeed("two servers, failed fsync");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const numbers = range(1, 40);
  const report = await twoServerSyncErrors({ numbers, seed, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
  expect(report.faults).toBeGreaterThanOrEqual(2);
});

/** Which fsyncs to fail, one in each run. */
interface SyncErrorOptions {
  /** The numbers to try. They stop early at the first one that no run gets to. */
  readonly numbers: Iterable<number>;
  readonly seed: number;
  /** What happens at that number. @default {"failSync"} */
  readonly fault?: "failSync" | "killSync" | "killPage";
  /** Whether the plants are large and many, so that the WAL fills and a checkpoint comes. @default {false} */
  readonly heavy?: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Fails the n-th fsync of a server's life for each n, and holds the server to ending, and the file to the ledger. */
function syncErrors(options: SyncErrorOptions): Promise<Report> {
  const { numbers, seed, fault = "failSync", heavy = false, program } = options;
  return eachFault(`${heavy ? "checkpoints too, " : ""}${fault}`, numbers, async (disk, ledger, number) => {
    await using server = start(onFreePort(disk.server({ faults: { power: true, [fault]: number }, program })));
    const plants = plantsOf(seed + number, { heavy, plants: fault === "failSync" ? 60 : 150 });
    const load = await loadOf(server, ledger, plants, heavy ? 32 : 8);
    if (fault === "failSync") await requireEnd(server, load, () => disk.isRaised("hit"), number);
    else await requireDeath(server, disk.isRaised("hit"));
    return await judgeAfter(disk, ledger);
  });
}

/** A server that did not die gets SIGTERM, and may die while it closes the database. */
async function requireDeath({ child }: Program, isDead: boolean): Promise<void> {
  if (!isDead) child.kill("SIGTERM");
  await exitCodeOf(child);
  if (child.exitCode !== 0 && child.signalCode !== "SIGKILL") throw new Error(`It ended with ${child.exitCode}`);
}

/** 350 plants of 15 pages each are more than the WAL gathers before a checkpoint. */
function plantsOf(seed: number, { heavy, plants }: { heavy: boolean; plants: number }): () => NewPlant | undefined {
  const next = randomPlants(randomFrom(seed), { again: heavy ? 0 : 0.1 });
  const name = "x".repeat(60_000);
  return heavy ? limited(() => ({ ...next(), name }), 350) : limited(next, plants);
}

/** What the page cache has, then what the disk has, then what a next server makes of it. */
async function judgeAfter(disk: Disk, ledger: Ledger): Promise<Verdict> {
  const cached = ledger.judge(disk.database);
  disk.losePower();
  const durable = ledger.judge(disk.database);
  await settle(disk.server({ faults: { power: true } }), ledger);
  return [cached, durable, ledger.judge(disk.database)].reduce(worse);
}

/**
 * Fails the n-th fsync of one of two servers on a file, for each n. That one has to end. The other one serves on until
 * the kernel tells it, at its own next fsync of that file; then it has to end, too.
 */
function twoServerSyncErrors(options: Omit<SyncErrorOptions, "heavy">): Promise<Report> {
  const experiment = "a failed fsync, two servers on a file";
  const run = async (disk: Disk, ledger: Ledger, number: number) => {
    await runBoth(disk, number, ledger, options);
    return await judgeBoth(disk, ledger, number);
  };
  return eachFault(experiment, options.numbers, run, { endsEarly: false });
}

async function runBoth(disk: Disk, failSync: number, ledger: Ledger, { seed, program }: SyncErrorOptions) {
  const next = randomPlants(randomFrom(seed + failSync), { again: 0.3 });
  await using one = start(onFreePort(disk.server({ faults: { power: true, failSync }, program })));
  await using other = start(onFreePort(disk.server({ faults: { power: true }, program })));
  // Both listen before either is loaded, and each gets as many plants: the other could store all of them otherwise.
  await Promise.all([urlOf(one), urlOf(other)]);
  const [load, otherLoad] = await Promise.all([one, other].map((each) => loadOf(each, ledger, limited(next, 120), 6)));
  // The fault may also come at the end, when the WAL is moved.
  await requireEnd(one, load, () => disk.isRaised("hit"), failSync);
  await requireEnd(other, otherLoad, () => disk.isRaised("told"), failSync);
}

/** Every second time the next server comes before the power loss, and finds what the page cache has. */
async function judgeBoth(disk: Disk, ledger: Ledger, number: number): Promise<Verdict> {
  const verdicts = [ledger.judge(disk.database)];
  if (number % 2 === 0) disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  await settle(disk.server({ faults: { power: true } }), ledger);
  disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  return verdicts.reduce(worse);
}

type Program = ReturnType<typeof start>;

/**
 * Loads a server until the first response about the fault: whatever is unanswered was accepted before it. Resolves to
 * nothing if the server ends before it listens.
 */
async function loadOf(program: Program, ledger: Ledger, next: () => NewPlant | undefined, connections: number) {
  const url = await urlOf(program);
  return url === undefined
    ? undefined
    : startLoad({ url, connections, ledger, next, endOn: ["503/5032", "503/5033"] }).end;
}

/**
 * Ends a server that its fault has not ended. One that had a failed fsync, or was told of one, ends with an exit code of its
 * own, and leaves no request without a true response.
 */
async function requireEnd(
  { child, stderr }: Program,
  load: LoadReport | undefined,
  isFailed: () => boolean,
  number: number,
): Promise<void> {
  if (!isFailed()) child.kill("SIGTERM");
  const exitCode = await exitCodeOf(child);
  const { unanswered = 0, wrong = 0, responses = {} } = load ?? {};
  const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/503[23])$/.test(response));
  if ((exitCode !== 0) === isFailed() && unanswered === 0 && wrong === 0 && others.length === 0) return;
  const seen = JSON.stringify({ isFailed: isFailed(), exitCode, unanswered, wrong, responses });
  throw new Error(`After fsync ${number} failed: ${seen}\n${await stderr.end}`);
}
