import { closeSync, copyFileSync, fsyncSync, openSync } from "node:fs";
import { join } from "node:path";

import { emptyDirectory } from "../../support/program.ts";
import {
  BY_HAND,
  type Contender,
  ELYSIA_DRIZZLE,
  HONO,
  installPeers,
  ours,
  OURS_NAME,
} from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { makePlants } from "../prefilled.ts";
import { costTable, type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, type Costs, figures, ratios, relative, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";

/**
 * What a plant of a random id costs, and how long it waits, over many stored plants and over ten
 * times as many.
 */
export async function growth(rounds: Rounds, plants: number): Promise<Section> {
  using stack = new DisposableStack();
  await installPeers();
  const sizes = [plants, 10 * plants];
  const contenders = sizes.flatMap((size) => contendersOver(size, stack));
  const costs = await compare(contenders, rounds, { connections: 64, ids: "random" });
  const toTenth = relative(
    costs,
    "cpuMicros",
    over(10 * plants, OURS_NAME),
    over(plants, OURS_NAME),
  );

  return {
    title: "Random ids over many stored plants",
    about:
      "64 connections; each program has a copy of the same file, in the page cache. The longest wait is of all rounds.",
    ...costTable(costs, "program", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["plants/s", "perSecond", 0],
      ["p50 ms", "p50Ms", 1],
      ["p90 ms", "p90Ms", 1],
      ["p99 ms", "p99Ms", 1],
      ["longest ms", "maxMs", 1],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [
      ...sizes.flatMap((size) => goalsOver(size, costs)),
      outcome(
        `CPU of ten times as many plants / ${thousands(plants)} stored`,
        toTenth,
        GOALS.growth.cpuToTenth,
      ),
    ],
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
    return { ...contender, name: over(size, contender.name), cwd };
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

function goalsOver(size: number, costs: Costs): Outcome[] {
  const name = over(size, OURS_NAME);
  const worker = over(size, BY_HAND.leanWorker.name);
  const p50 = figures(costs, name, "p50Ms");
  const p99 = figures(costs, name, "p99Ms");
  const toWorker = (what: string, figure: keyof Cost, limit: number) =>
    outcome(`${what} / ${worker}`, relative(costs, figure, name, worker), limit);
  const { growth } = GOALS;

  return [
    toWorker("CPU", "cpuMicros", growth.cpuToLeanWorker),
    toWorker("p90", "p90Ms", growth.p90ToLeanWorker),
    toWorker("p99", "p99Ms", growth.p99ToLeanWorker),
    toWorker("longest", "maxMs", growth.maxToLeanWorker),
    outcome(`p99 / p50, ${thousands(size)} stored`, ratios(p99, p50), growth.p99ToP50),
    outcome(`longest ms, ${thousands(size)} stored`, figures(costs, name, "maxMs"), growth.maxMs),
  ];
}
