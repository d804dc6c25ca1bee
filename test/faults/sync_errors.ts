import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, type Ledger, makeLedger, type Report, type Verdict, worse } from "../support/ledger.ts";
import { limited, type LoadReport, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, start, type StartOptions } from "../support/program.ts";
import { type Disk, makeDisk } from "../support/shim.ts";
import { onFreePort, settle } from "./settle.ts";

/** Which fsyncs to fail, one in each run. */
export interface SyncErrorOptions {
  /** The numbers to try. They stop early at the first one that no run gets to. */
  readonly numbers: Iterable<number>;
  readonly seed: number;
  /** Whether the plants are large and many, so that the WAL fills and a checkpoint comes. @default {false} */
  readonly heavy?: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** What a run with one failing fsync did. */
interface Run {
  readonly wasHit: boolean;
  readonly exitCode: number;
  readonly stderr: string;
  /** Nothing when the program ended before it listened. */
  readonly load: LoadReport | undefined;
}

/** Fails the n-th fsync of a server's life for each n, and holds the server to ending, and the file to the ledger. */
export async function syncErrors({ numbers, seed, heavy = false, program }: SyncErrorOptions): Promise<Report> {
  const began = performance.now();
  let [verdict, faults, acknowledged] = [INTACT, 0, 0];
  for (const failSync of numbers) {
    using disk = makeDisk({ shim: true });
    const ledger = makeLedger();
    const options = disk.server({ faults: { power: true, failSync }, program });
    const run = await runWith(options, disk, ledger, plantsOf(seed + failSync, heavy), heavy ? 32 : 8);
    requireFailStop(run, failSync);
    acknowledged += ledger.acknowledgements();
    verdict = worse(verdict, await judgeAfter(disk, ledger));
    if (!run.wasHit) break;
    faults++;
  }
  const experiment = heavy ? "a failed fsync, checkpoints too" : "a failed fsync";
  return { experiment, size: `${faults} faults, ${acknowledged} acknowledged`, verdict, faults, began };
}

/** 350 plants of 15 pages each are more than the WAL gathers before a checkpoint. */
function plantsOf(seed: number, heavy: boolean): () => NewPlant | undefined {
  const next = randomPlants(randomFrom(seed), { again: heavy ? 0 : 0.1 });
  const name = "x".repeat(60_000);
  return heavy ? limited(() => ({ ...next(), name }), 350) : limited(next, 60);
}

async function runWith(
  options: StartOptions,
  disk: Disk,
  ledger: Ledger,
  next: () => NewPlant | undefined,
  connections: number,
): Promise<Run> {
  await using program = start(onFreePort(options));
  const { child, stderr } = program;
  const listening = stderr.until(/listens on (http:\S+?)[,\s]/);
  const url = await listening.then(
    ([, url = ""]) => url,
    () => undefined,
  );
  // Clients stop at the first response about the fault: whatever is unanswered was accepted before it.
  const plan = { connections, ledger, next, endOn: ["503/5032", "503/5033"] };
  const load = url === undefined ? undefined : await startLoad({ url, ...plan }).end;
  if (!disk.isRaised("hit")) child.kill("SIGTERM");
  const exitCode = await exitCodeOf(child);
  return { wasHit: disk.isRaised("hit"), exitCode, stderr: await stderr.end, load };
}

/** A failed fsync ends the program with an exit code, and leaves no request without a true response. */
function requireFailStop({ wasHit, exitCode, stderr, load }: Run, number: number): void {
  const { unanswered = 0, wrong = 0, responses = {} } = load ?? {};
  const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/503[23])$/.test(response));
  const isStopped = (exitCode === 0) !== wasHit;
  if (isStopped && unanswered === 0 && wrong === 0 && others.length === 0) return;
  const seen = JSON.stringify({ wasHit, exitCode, unanswered, wrong, responses });
  throw new Error(`After fsync ${number} failed: ${seen}\n${stderr}`);
}

/** What the page cache has, then what the disk has, then what a next server makes of it. */
async function judgeAfter(disk: Disk, ledger: Ledger): Promise<Verdict> {
  const cached = ledger.judge(disk.database);
  disk.losePower();
  const durable = ledger.judge(disk.database);
  await settle(disk.server({ faults: { power: true } }), ledger);
  return [cached, durable, ledger.judge(disk.database)].reduce(worse);
}
