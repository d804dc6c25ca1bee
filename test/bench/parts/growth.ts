import { closeSync, copyFileSync, fsyncSync, openSync } from "node:fs";
import { join } from "node:path";
import { emptyDirectory } from "../../support/program.ts";
import { BY_HAND, type Contender, ELYSIA_DRIZZLE, HONO, ours, OURS_NAME } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { installPeers } from "../peers.ts";
import { makePlants } from "../prefilled.ts";
import { type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, type Costs, figures, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

/** What a plant of a random id costs, and how long it waits, over many stored plants and over ten times as many. */
export async function growth(rounds: Rounds, plants: number): Promise<Section> {
  using stack = new DisposableStack();
  await installPeers();
  const sizes = [plants, 10 * plants];
  const costs = await compare(
    sizes.flatMap((size) => contendersOver(size, stack)),
    rounds,
    { connections: 64 },
  );
  return {
    title: "Random ids over many stored plants",
    about:
      "64 connections; each program has a copy of the same file, in the page cache. The longest wait is of all rounds.",
    columns: ["program", "CPU µs/plant", "plants/s", "p50 ms", "p90 ms", "p99 ms", "longest ms", "peak MB"],
    rows: [...costs.keys()].map((name) => row(name, costs)),
    goals: [...sizes.flatMap((size) => goalsOver(size, costs)), goalOfTenTimes(plants, costs)],
    costs: Object.fromEntries(costs),
  };
}

function contendersOver(size: number, stack: DisposableStack): Contender[] {
  const made = stack.use(emptyDirectory()).path;
  makePlants(made, size);
  // The check for corruption reads the whole file, for seconds: the load waits for its end.
  const service = ours({ settled: /Integrity check passed/ });
  return [service, BY_HAND.leanWorker, BY_HAND.lean, HONO, ELYSIA_DRIZZLE].map((contender) => {
    const cwd = stack.use(emptyDirectory()).path;
    copyDurably(join(made, "plants.db"), join(cwd, "plants.db"));
    return { ...contender, name: over(size, contender.name), ids: "random", cwd };
  });
}

const over = (size: number, name: string) => `${name}, ${thousands(size)} stored`;

/** Pages of the copy that are still to be written would be part of the first fsync. */
function copyDurably(from: string, to: string): void {
  copyFileSync(from, to);
  const file = openSync(to, "r+");
  fsyncSync(file);
  closeSync(file);
}

/** What is measured of a plant. */
const FIGURES = {
  cpu: ({ cpuMicros }: Cost) => cpuMicros,
  rate: ({ perSecond }: Cost) => perSecond,
  p50: ({ p50Ms }: Cost) => p50Ms,
  p90: ({ p90Ms }: Cost) => p90Ms,
  p99: ({ p99Ms }: Cost) => p99Ms,
  longest: ({ maxMs }: Cost) => maxMs,
  memory: ({ peakMemory }: Cost) => peakMemory / 1e6,
} as const;

type Figure = keyof typeof FIGURES;

function row(name: string, costs: Costs): string[] {
  const all = (figure: Figure) => figures(costs, name, FIGURES[figure]);
  const middle = (figure: Figure) => median(all(figure));
  const waits = [...(["p50", "p90", "p99"] as const).map(middle), Math.max(...all("longest"))].map((ms) =>
    ms.toFixed(1),
  );
  return [name, middle("cpu").toFixed(1), thousands(middle("rate")), ...waits, thousands(Math.max(...all("memory")))];
}

function goalsOver(size: number, costs: Costs): Outcome[] {
  const [name, worker] = [over(size, OURS_NAME), over(size, BY_HAND.leanWorker.name)];
  const all = (of: string, figure: Figure) => figures(costs, of, FIGURES[figure]);
  const toWorker = (figure: Figure, limit: number) =>
    outcome(`${figure} / ${worker}`, ratios(all(name, figure), all(worker, figure)), limit);
  const { growth } = GOALS;
  return [
    toWorker("cpu", growth.cpuToLeanWorker),
    toWorker("p90", growth.p90ToLeanWorker),
    toWorker("p99", growth.p99ToLeanWorker),
    toWorker("longest", growth.maxToLeanWorker),
    outcome(`p99 / p50, ${thousands(size)} stored`, ratios(all(name, "p99"), all(name, "p50")), growth.p99ToP50),
    outcome(`longest ms, ${thousands(size)} stored`, all(name, "longest"), growth.maxMs),
  ];
}

function goalOfTenTimes(size: number, costs: Costs): Outcome {
  const cpu = (plants: number) => figures(costs, over(plants, OURS_NAME), FIGURES.cpu);
  return outcome(
    `cpu of ten times as many plants / ${thousands(size)} stored`,
    ratios(cpu(10 * size), cpu(size)),
    GOALS.growth.cpuToTenth,
  );
}
