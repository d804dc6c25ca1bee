import { INTACT, type Ledger, makeLedger, type Report, worse } from "../support/ledger.ts";
import { randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { start, startServer, type StartOptions } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { onFreePort, settle } from "./settle.ts";

/** How to crash a server. */
export interface CrashOptions {
  /** How often. */
  readonly times: number;
  readonly seed: number;
  /** Whether the machine goes down with the process: then what was not synced is gone. */
  readonly power: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Kills a server again and again under load, each time on the file that the last one left, and judges each time. */
export async function crashes({ times, seed, power, program }: CrashOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: power });
  const random = randomFrom(seed);
  const ledger = makeLedger();
  const next = randomPlants(random);
  let verdict = INTACT;
  for (let crash = 1; crash <= times; crash++) {
    const faults = power ? { power, writeback: 100, seed: Math.floor(random() * 2 ** 31) } : {};
    const options = disk.server({ faults, program });
    // Every fifth dies while it starts, on what the fourth has left.
    if (crash % 5 === 0) await crashAtStart(options, random() * 300);
    else await crashUnderLoad(options, { afterResponses: 20 + random() * 400, thenMs: random() * 30 }, ledger, next);
    if (power) disk.losePower();
    verdict = worse(verdict, ledger.judge(disk.database));
  }
  const acknowledged = ledger.acknowledgements();
  await settle(disk.server({ faults: { power }, program }), ledger);
  verdict = worse(verdict, ledger.judge(disk.database));
  return {
    experiment: power ? "power loss under load" : "kill -9 under load",
    size: `${times} crashes, ${ledger.attempts()} sent, ${acknowledged} acknowledged`,
    verdict,
    began,
  };
}

async function crashAtStart(options: StartOptions, afterMs: number): Promise<void> {
  await using program = start(onFreePort(options));
  await Bun.sleep(afterMs);
  program.child.kill("SIGKILL");
}

async function crashUnderLoad(
  options: StartOptions,
  { afterResponses, thenMs }: { readonly afterResponses: number; readonly thenMs: number },
  ledger: Ledger,
  next: ReturnType<typeof randomPlants>,
): Promise<void> {
  await using server = await startServer(options);
  const load = startLoad({ url: server.url, connections: 48, ledger, next });
  while (load.answered() < afterResponses && server.child.exitCode === null) await Bun.sleep(1);
  await Bun.sleep(thenMs);
  server.child.kill("SIGKILL");
  await server.child.exited;
  const { wrong } = await load.end;
  if (wrong > 0) throw new Error(`${wrong} responses had another plant in them`);
}
