import { expect } from "bun:test";

import { INTACT, makeLedger, printed, type Verdict, worse } from "../support/ledger.ts";
import { printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { start, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { onFreePort, settle } from "./settle.ts";

/** How to crash servers. */
export interface CrashOptions {
  /** How often. */
  readonly times: number;
  /** Whether the machine goes down with the process: then what was not synced is gone. */
  readonly power: boolean;
  /** How many servers share the file. @default {1} */
  readonly servers?: 1 | 2;
  /** @default the executable */
  readonly program?: readonly string[];
}

/**
 * Kills servers again and again under load, each time on the file that the last crash left, and
 * judges each time.
 */
export async function crashes({
  times,
  power,
  servers = 1,
  program,
}: CrashOptions): Promise<Verdict> {
  const experiment = `${power ? "power loss" : "kill -9"} ${servers === 1 ? "under load" : "of two servers on a file"}`;
  using disk = makeDisk({ shim: power });
  const random = randomFrom(printedSeed(experiment));
  const ledger = makeLedger();

  // Two servers get many of the same plants and rivals for them.
  const next = randomPlants(random, { again: servers === 1 ? 0.1 : 0.4 });

  const options = () => {
    const faults = power ? { power, writeback: 100, seed: Math.floor(random() * 2 ** 31) } : {};
    return disk.server({ faults, program });
  };

  let verdict = INTACT;
  for (let crash = 1; crash <= times; crash++) {
    await using stack = new AsyncDisposableStack();
    if (servers === 2) await crashBoth(stack, { killsOneFirst: crash % 2 === 1 });
    // Every fifth dies while it starts, on what the fourth has left.
    else if (crash % 5 === 0) await crashAtStart(stack);
    else await crashOne(stack);
    if (power) disk.losePower();
    verdict = worse(verdict, ledger.judge(disk.database));
  }

  const size = `${times} crashes, ${ledger.attempts()} sent, ${ledger.acknowledgements()} acknowledged`;
  await settle(disk.server({ faults: { power }, program }), ledger);
  verdict = worse(verdict, ledger.judge(disk.database));
  return printed(experiment, size, verdict);

  async function crashAtStart(stack: AsyncDisposableStack): Promise<void> {
    const { child } = stack.use(start(onFreePort(options())));
    await Bun.sleep(random() * 300);
    child.kill("SIGKILL");
    await child.exited;
  }

  async function crashOne(stack: AsyncDisposableStack): Promise<void> {
    const server = await startLoaded(stack, 48);
    await server.answers(20 + random() * 400);
    await Bun.sleep(random() * 30);
    await server.kill();
  }

  /** One is killed and comes back beside the other, before the end of both; or both end together. */
  async function crashBoth(
    stack: AsyncDisposableStack,
    { killsOneFirst }: { readonly killsOneFirst: boolean },
  ) {
    let [one, other] = await Promise.all([startLoaded(stack, 24), startLoaded(stack, 24)]);
    await one.answers(20 + random() * 200);
    await other.answers(20);
    await Bun.sleep(random() * 30);

    if (killsOneFirst) {
      await one.kill();
      await other.answers(20 + random() * 100);
      one = await startLoaded(stack, 24);
      await one.answers(20 + random() * 100);
    }

    await Promise.all([one.kill(), other.kill()]);
  }

  /** A server under load until it is killed. */
  async function startLoaded(stack: AsyncDisposableStack, connections: number) {
    const { url, child } = stack.use(await startServer(options()));
    const load = startLoad({ url, connections, ledger, next });

    return {
      answers: load.answers,
      async kill(): Promise<void> {
        child.kill("SIGKILL");
        await child.exited;
        const { responses, wrong } = await load.end;
        expect(wrong).toBe(0);
        // Two servers that wait for each other's lock are slow, and no more than that.
        expect(["200", "409/4091"]).toEqual(expect.arrayContaining(Object.keys(responses)));
      },
    };
  }
}
