import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, type Ledger, makeLedger, printed, type Report, worse } from "../support/ledger.ts";
import { type LoadReport, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS, type StartOptions, startServer } from "../support/program.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import type { CrashOptions } from "./crashes.ts";
import { FREQUENT_CHECKPOINTS, SYNCHRONOUS_NORMAL } from "./mutations.ts";
import { settle } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("kill -9 of one and of both of two servers on a file loses, invents and changes no plant", async () => {
  const seed = printedSeed("two servers, kill -9");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await twoServerCrashes({ times: 20, seed, power: false, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers on a file lose, invent and change no plant", async () => {
  const seed = printedSeed("two servers, power loss");
  using copy = mutant(FREQUENT_CHECKPOINTS);
  const report = await twoServerCrashes({ times: 20, seed, power: true, program: copy.program });
  expect(printed(report)).toEqual(INTACT);
});

test.skipIf(skipsShim())("power losses of two servers lose acknowledged plants with synchronous=NORMAL", async () => {
  const seed = printedSeed("two servers, power loss with synchronous=NORMAL");
  using copy = mutant(SYNCHRONOUS_NORMAL);
  const report = await twoServerCrashes({ times: 5, seed, power: true, program: copy.program });
  expect(printed(report).lost).toBeGreaterThan(0);
});

/**
 * Crashes two servers that share a file again and again, each time on what the last crash left, and judges each time.
 * The clients of both draw from one source, so that both servers get many of the same plants and rivals for them.
 */
async function twoServerCrashes({ times, seed, power, program }: CrashOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: power });
  const random = randomFrom(seed);
  const ledger = makeLedger();
  const next = randomPlants(random, { again: 0.4 });
  const options = () => {
    const faults = power ? { power, writeback: 100, seed: Math.floor(random() * 2 ** 31) } : {};
    return disk.server({ faults, program });
  };
  let verdict = INTACT;
  for (let crash = 1; crash <= times; crash++) {
    const plan = { ledger, next, random };
    // One is killed and comes back beside the other, before the end of both; or both end together.
    await crashBoth(options, { ...plan, killsOneFirst: crash % 2 === 1 });
    if (power) disk.losePower();
    verdict = worse(verdict, ledger.judge(disk.database));
  }
  const acknowledged = ledger.acknowledgements();
  await settle(disk.server({ faults: { power }, program }), ledger);
  verdict = worse(verdict, ledger.judge(disk.database));
  return {
    experiment: power ? "power loss, two servers on a file" : "kill -9, two servers on a file",
    size: `${times} crashes, ${ledger.attempts()} sent, ${acknowledged} acknowledged`,
    verdict,
    began,
  };
}

/** What two servers are loaded with, and when they end. */
interface CrashPlan {
  readonly ledger: Ledger;
  readonly next: ReturnType<typeof randomPlants>;
  readonly random: () => number;
  readonly killsOneFirst: boolean;
}

async function crashBoth(options: () => StartOptions, { killsOneFirst, random, ...plan }: CrashPlan): Promise<void> {
  await using servers = new AsyncDisposableStack();
  const started = await Promise.all([startLoaded(options(), plan), startLoaded(options(), plan)]);
  for (const server of started) servers.use(server);
  const [one, other] = started;
  await one.answers(20 + random() * 200);
  await other.answers(20);
  if (killsOneFirst) {
    await Bun.sleep(random() * 30);
    await one.kill();
    await other.answers(20 + random() * 100);
    const again = servers.use(await startLoaded(options(), plan));
    await again.answers(20 + random() * 100);
    await Promise.all([again.kill(), other.kill()]);
  } else {
    await Bun.sleep(random() * 30);
    await Promise.all([one.kill(), other.kill()]);
  }
}

/** A server under load until it is killed. */
async function startLoaded(options: StartOptions, { ledger, next }: Pick<CrashPlan, "ledger" | "next">) {
  const server = await startServer(options);
  const load = startLoad({ url: server.url, connections: 24, ledger, next });
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
