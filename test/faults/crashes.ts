import { INTACT, type Ledger, makeLedger, type Report, worse } from "../support/ledger.ts";
import { type LoadReport, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { start, startServer, type StartOptions } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { onFreePort, settle } from "./settle.ts";

/** How to crash servers. */
export interface CrashOptions {
  /** How often. */
  readonly times: number;
  readonly seed: number;
  /** Whether the machine goes down with the process: then what was not synced is gone. */
  readonly power: boolean;
  /** How many servers share the file. @default {1} */
  readonly servers?: 1 | 2;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Kills servers again and again under load, each time on the file that the last crash left, and judges each time. */
export async function crashes({ times, seed, power, servers = 1, program }: CrashOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: power });
  const random = randomFrom(seed);
  const ledger = makeLedger();
  // Two servers get many of the same plants and rivals for them.
  const next = randomPlants(random, { again: servers === 1 ? 0.1 : 0.4 });
  const options = () => {
    const faults = power ? { power, writeback: 100, seed: Math.floor(random() * 2 ** 31) } : {};
    return disk.server({ faults, program });
  };
  const plan = { options, ledger, next, random };
  let verdict = INTACT;
  for (let crash = 1; crash <= times; crash++) {
    if (servers === 2) await crashBoth(plan, { killsOneFirst: crash % 2 === 1 });
    // Every fifth dies while it starts, on what the fourth has left.
    else if (crash % 5 === 0) await crashAtStart(plan);
    else await crashOne(plan);
    if (power) disk.losePower();
    verdict = worse(verdict, ledger.judge(disk.database));
  }
  const acknowledged = ledger.acknowledgements();
  await settle(disk.server({ faults: { power }, program }), ledger);
  verdict = worse(verdict, ledger.judge(disk.database));
  return {
    experiment: `${power ? "power loss" : "kill -9"} ${servers === 1 ? "under load" : "of two servers on a file"}`,
    size: `${times} crashes, ${ledger.attempts()} sent, ${acknowledged} acknowledged`,
    verdict,
    began,
  };
}

/** How servers are started and what they are loaded with. */
interface CrashPlan {
  readonly options: () => StartOptions;
  readonly ledger: Ledger;
  readonly next: ReturnType<typeof randomPlants>;
  readonly random: () => number;
}

async function crashAtStart({ options, random }: CrashPlan): Promise<void> {
  await using program = start(onFreePort(options()));
  await Bun.sleep(random() * 300);
  program.child.kill("SIGKILL");
}

async function crashOne(plan: CrashPlan): Promise<void> {
  await using server = await startLoaded(plan, 48);
  await server.answers(20 + plan.random() * 400);
  await Bun.sleep(plan.random() * 30);
  await server.kill();
}

/** One is killed and comes back beside the other, before the end of both; or both end together. */
async function crashBoth(plan: CrashPlan, { killsOneFirst }: { readonly killsOneFirst: boolean }): Promise<void> {
  const { random } = plan;
  await using servers = new AsyncDisposableStack();
  const started = await Promise.all([startLoaded(plan, 24), startLoaded(plan, 24)]);
  for (const server of started) servers.use(server);
  let [one, other] = started;
  await one.answers(20 + random() * 200);
  await other.answers(20);
  await Bun.sleep(random() * 30);
  if (killsOneFirst) {
    await one.kill();
    await other.answers(20 + random() * 100);
    one = servers.use(await startLoaded(plan, 24));
    await one.answers(20 + random() * 100);
  }
  await Promise.all([one.kill(), other.kill()]);
}

/** A server under load until it is killed. */
async function startLoaded({ options, ledger, next }: CrashPlan, connections: number) {
  const server = await startServer(options());
  const load = startLoad({ url: server.url, connections, ledger, next });
  return {
    /** Waits for so many more responses. */
    async answers(count: number): Promise<void> {
      const end = load.answered() + count;
      while (load.answered() < end) {
        if (server.child.exitCode !== null) throw new Error(`It ended by itself:\n${server.stderr.text()}`);
        await Bun.sleep(1);
      }
    },
    async kill(): Promise<void> {
      server.child.kill("SIGKILL");
      await server.child.exited;
      requireExpected(await load.end);
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Two servers that wait for each other's lock are slow, and no more than that. */
function requireExpected({ responses, wrong }: LoadReport): void {
  const others = Object.keys(responses).filter((response) => response !== "200" && response !== "409/4091");
  if (others.length > 0 || wrong > 0) throw new Error(`${wrong} wrong, ${JSON.stringify(responses)}`);
}
