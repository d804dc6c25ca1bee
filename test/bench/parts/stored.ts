import { skipsShim } from "../../support/shim.ts";
import {
  BY_HAND,
  CEILING,
  ELYSIA_DRIZZLE,
  HONO,
  installPeers,
  LEAN_ELYSIA,
  ours,
  OURS_NAME,
} from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { costTable, type Outcome, outcome, type Section } from "../report.ts";
import { compare, type Costs, relative, type Rounds } from "../rounds.ts";
import { requireFsync } from "../servers.ts";

/**
 * What a stored plant costs at 64 connections, beside lean programs with and without a framework,
 * and usual ones.
 */
export async function stored(rounds: Rounds): Promise<Section> {
  await installPeers();
  const contenders = [BY_HAND.lean, BY_HAND.leanWorker, LEAN_ELYSIA, ours(), ELYSIA_DRIZZLE, HONO];
  const isUnchecked = skipsShim();
  if (!isUnchecked) for (const contender of contenders) await requireFsync(contender);

  const costs = await compare([CEILING, ...contenders], rounds, { connections: 64 });
  const { name: lean } = LEAN_ELYSIA;
  const throughput = relative(costs, "perSecond", OURS_NAME, lean);

  return {
    title: "A stored plant",
    about:
      "64 connections, ascending ids, an fsync before each 200 (plant-store and the lean ones: one for each batch).",
    ...costTable(costs, "program", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["plants/s", "perSecond", 0],
      ["p50 ms", "p50Ms", 2],
      ["p99 ms", "p99Ms", 2],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [
      ...cpuGoals(costs),
      outcome(`plants/s / ${lean}`, throughput, GOALS.throughputToLeanElysia, "least"),
    ],
    missing: isUnchecked
      ? ["whether each program fsyncs before its 200: there is no C compiler (cc)"]
      : [],
  };
}

/** CPU of a stored plant beside the lean program on Elysia. */
export function cpuGoals(costs: Costs): Outcome[] {
  const { name: lean } = LEAN_ELYSIA;
  return [
    outcome(`CPU / ${lean}`, relative(costs, "cpuMicros", OURS_NAME, lean), GOALS.cpuToLeanElysia),
  ];
}
