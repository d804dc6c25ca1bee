import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, type Ledger, makeLedger, type Report, type Verdict, worse } from "../support/ledger.ts";
import { limited, type LoadReport, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, start } from "../support/program.ts";
import { type Disk, makeDisk } from "../support/shim.ts";
import { onFreePort, settle } from "./settle.ts";
import type { SyncErrorOptions } from "./sync_errors.ts";

/** What one of the servers did. */
interface Run {
  readonly exitCode: number;
  readonly stderr: string;
  /** Nothing when the program ended before it listened. */
  readonly load: LoadReport | undefined;
}

/**
 * Fails the n-th fsync of one of two servers on a file, for each n. That one has to end. The other one serves on until
 * the kernel tells it, at its own next fsync of that file; then it has to end, too.
 */
export async function twoServerSyncErrors(options: Omit<SyncErrorOptions, "heavy">): Promise<Report> {
  const began = performance.now();
  let [verdict, faults, told, acknowledged] = [INTACT, 0, 0, 0];
  for (const failSync of options.numbers) {
    using disk = makeDisk({ shim: true });
    const ledger = makeLedger();
    await runBoth(disk, failSync, ledger, options);
    verdict = worse(verdict, await judgeAfter(disk, ledger, failSync));
    acknowledged += ledger.acknowledgements();
    faults += Number(disk.isRaised("hit"));
    told += Number(disk.isRaised("told"));
  }
  const size = `${faults} faults, ${told} ended both servers, ${acknowledged} acknowledged`;
  return { experiment: "a failed fsync, two servers on a file", size, verdict, faults, began };
}

async function runBoth(disk: Disk, failSync: number, ledger: Ledger, { seed, program }: SyncErrorOptions) {
  const next = randomPlants(randomFrom(seed + failSync), { again: 0.3 });
  const faulty = disk.server({ faults: { power: true, failSync }, program });
  const sound = disk.server({ faults: { power: true }, program });
  await using programs = new AsyncDisposableStack();
  const [one, other] = [faulty, sound].map((options) => programs.use(start(onFreePort(options)))) as [
    ReturnType<typeof start>,
    ReturnType<typeof start>,
  ];
  // Both listen before either is loaded, and each gets as many plants: the other could store all of them otherwise.
  const urls = await Promise.all([urlOf(one), urlOf(other)]);
  const loads = await Promise.all(
    urls.map((url) => (url === undefined ? undefined : loadOf(url, ledger, limited(next, 120)))),
  );
  // The fault may also come at the end, when the WAL is moved.
  if (!disk.isRaised("hit")) one.child.kill("SIGTERM");
  requireEnd(await endOf(one, loads[0]), disk.isRaised("hit"), failSync);
  if (!disk.isRaised("told")) other.child.kill("SIGTERM");
  requireEnd(await endOf(other, loads[1]), disk.isRaised("told"), failSync);
}

/** Nothing if the program ends before it listens. */
function urlOf({ stderr }: ReturnType<typeof start>): Promise<string | undefined> {
  return stderr.until(/listens on (http:\S+?)[,\s]/).then(
    ([, url]) => url,
    () => undefined,
  );
}

/** Clients stop at the first response about the fault: whatever is unanswered was accepted before it. */
function loadOf(url: string, ledger: Ledger, next: () => NewPlant | undefined): Promise<LoadReport> {
  return startLoad({ url, connections: 6, ledger, next, endOn: ["503/5032", "503/5033"] }).end;
}

async function endOf({ child, stderr }: ReturnType<typeof start>, load: Run["load"]): Promise<Run> {
  return { exitCode: await exitCodeOf(child), stderr: await stderr.end, load };
}

/** A server that had a failed fsync, or was told of one, ends with an exit code; each request has a true response. */
function requireEnd({ exitCode, stderr, load }: Run, isFailed: boolean, number: number): void {
  const { unanswered = 0, wrong = 0, responses = {} } = load ?? {};
  const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/503[23])$/.test(response));
  if ((exitCode !== 0) === isFailed && unanswered === 0 && wrong === 0 && others.length === 0) return;
  const seen = JSON.stringify({ isFailed, exitCode, unanswered, wrong, responses });
  throw new Error(`After fsync ${number} failed: ${seen}\n${stderr}`);
}

/** Every second time the next server comes before the power loss, and finds what the page cache has. */
async function judgeAfter(disk: Disk, ledger: Ledger, number: number): Promise<Verdict> {
  const verdicts = [ledger.judge(disk.database)];
  if (number % 2 === 0) disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  await settle(disk.server({ faults: { power: true } }), ledger);
  disk.losePower();
  verdicts.push(ledger.judge(disk.database));
  return verdicts.reduce(worse);
}
