import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, type Ledger, printed, type Report } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, start } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { type Disk, type Faults, skipsShim } from "../support/shim.ts";
import { requireReady, requireUnavailable } from "./health.ts";
import { eachFault, onFreePort, settle, urlOf } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** How many writes a run has at most. */
const EVERY = range(1, 400);

/** How many it has at least: some 70 to 100 were seen, fewer where batches are large. */
const LEAST_WRITES = 25;

/** Every third write: with one of the four experiments on every write, and the others a write apart, none is left out. */
const everyThird = (first: number) => EVERY.filter((number) => number % 3 === first % 3);

test.skipIf(skipsShim()).each([
  ["ENOSPC", true, EVERY],
  ["ENOSPC", false, everyThird(1)],
  ["EIO", true, everyThird(2)],
  ["EIO", false, everyThird(3)],
  ["EROFS", true, range(20, 22)],
] as const)(
  "%s of a write (lasting: %p) stops no server, and is over when it is over",
  async (errno, lasting, numbers) => {
    const seed = printedSeed(errno);
    const report = await writeErrors({ numbers, seed, errno, lasting });
    expect(printed(report)).toEqual(INTACT);
    // Else the numbers are past the end of a run, and nothing was tried.
    expect(report.faults).toBeGreaterThanOrEqual(numbers.filter((number) => number <= LEAST_WRITES).length);
  },
);

/** Which writes to fail, from one on in each run. */
interface WriteErrorOptions {
  /** The numbers to try. They stop early at the first one that no run gets to. */
  readonly numbers: Iterable<number>;
  readonly seed: number;
  readonly errno: NonNullable<Faults["errno"]>;
  /** Whether writes go on failing until the fault is taken away; otherwise it is this one only. */
  readonly lasting: boolean;
}

/** Fails the n-th write of a server's life for each n, and holds the server to answering and to coming back. */
function writeErrors({ numbers, seed, errno, lasting }: WriteErrorOptions): Promise<Report> {
  const experiment = `${errno} ${lasting ? "from the n-th write on" : "at the n-th write"}`;
  return eachFault(experiment, numbers, async (disk, ledger, number) => {
    if (lasting) disk.raise("sick");
    await runWith(disk, { failWrite: number, errno }, ledger, randomFrom(seed + number));
    return ledger.judge(disk.database);
  });
}

async function runWith(disk: Disk, faults: Faults, ledger: Ledger, random: () => number): Promise<void> {
  await using program = start(onFreePort(disk.server({ faults })));
  const { child, stderr } = program;
  const url = await urlOf(program);
  if (url === undefined) return restart(disk, await child.exited, await stderr.end, ledger);
  const next = limited(randomPlants(random), 60);
  const { responses, unanswered } = await startLoad({ url, connections: 4, ledger, next }).end;
  const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/5032)$/.test(response));
  if (others.length > 0 || unanswered > 0) throw new Error(`${JSON.stringify({ faults, responses, unanswered })}`);
  // What is stored already needs no write, and is answered 200 also by a sick disk.
  const fresh = randomPlants(random, { again: 0 });
  const wasHit = disk.isRaised("hit");
  if (wasHit && disk.isRaised("sick")) await requireUnavailable(url, ledger, fresh());
  disk.clear("sick");
  if (wasHit) await requireReady(url, ledger, fresh);
  child.kill("SIGTERM");
  const exitCode = await exitCodeOf(child);
  // A fault while the database is closed is told, and loses nothing: the WAL stays.
  const expected = wasHit === disk.isRaised("hit") ? 0 : 1;
  if (exitCode !== expected) throw new Error(`${JSON.stringify(faults)}: the end had exit code ${exitCode}`);
}

/** A server that cannot start says so in one line, and the next one can once the disk is well again. */
async function restart(disk: Disk, exitCode: number, stderr: string, ledger: Ledger): Promise<void> {
  if (exitCode !== 1 || !/^Cannot open database [^\n]*\n$/.test(stderr)) {
    throw new Error(`It ended with exit code ${exitCode}:\n${stderr}`);
  }
  disk.clear("sick");
  await settle(disk.server(), ledger);
}
