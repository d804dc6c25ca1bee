import { skipsShim } from "../../support/shim.ts";
import {
  BY_HAND,
  CEILING,
  ELYSIA_DRIZZLE,
  HONO,
  installPeers,
  ours,
  OURS_NAME,
} from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { costTable, type Outcome, outcome, type Section } from "../report.ts";
import { compare, type Costs, relative, type Rounds } from "../rounds.ts";
import { requireFsync } from "../servers.ts";

/** What a stored plant costs at 64 connections, beside the same by hand, and on other frameworks. */
export async function stored(rounds: Rounds): Promise<Section> {
  await installPeers();
  const contenders = [BY_HAND.lean, BY_HAND.leanWorker, ours(), ELYSIA_DRIZZLE, HONO];
  const isUnchecked = skipsShim();
  if (!isUnchecked) for (const contender of contenders) await requireFsync(contender);
  const costs = await compare([CEILING, ...contenders], rounds, { connections: 64 });
  const { name: worker } = BY_HAND.leanWorker;
  const throughput = relative(costs, "perSecond", OURS_NAME, worker);
  return {
    title: "A stored plant",
    about:
      "64 connections, ascending ids, an fsync before each 200 (plant-store and by hand: one for each batch).",
    ...costTable(costs, "program", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["plants/s", "perSecond", 0],
      ["p50 ms", "p50Ms", 2],
      ["p99 ms", "p99Ms", 2],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [
      ...cpuGoals(costs),
      outcome(`plants/s / ${worker}`, throughput, GOALS.throughputToLeanWorker, "least"),
    ],
    missing: isUnchecked
      ? ["whether each program fsyncs before its 200: there is no C compiler (cc)"]
      : [],
  };
}

/** CPU of a stored plant beside the lean programs by hand. */
export function cpuGoals(costs: Costs): Outcome[] {
  const goal = (base: string, limit: number) =>
    outcome(`CPU / ${base}`, relative(costs, "cpuMicros", OURS_NAME, base), limit);
  return [
    goal(BY_HAND.leanWorker.name, GOALS.cpuToLeanWorker),
    goal(BY_HAND.lean.name, GOALS.cpuToLean),
  ];
}
