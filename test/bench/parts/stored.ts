import { emptyDirectory } from "../../support/program.ts";
import { skipsShim } from "../../support/shim.ts";
import { BY_HAND, CEILING, ours, OURS_NAME } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { preparePeers } from "../peers.ts";
import { costTable, type Outcome, outcome, type Section } from "../report.ts";
import { compare, type Costs, relative, type Rounds } from "../rounds.ts";
import { requireFsync } from "../servers.ts";

/** What a stored plant costs at 64 connections, beside the same by hand, on other frameworks and on other runtimes. */
export async function stored(rounds: Rounds): Promise<Section> {
  using directory = emptyDirectory();
  const { peers, missing } = await preparePeers(directory.path);
  const contenders = [BY_HAND.lean, BY_HAND.leanWorker, ours(), ...peers];
  if (skipsShim()) missing.push("whether each program fsyncs before its 200: there is no C compiler (cc)");
  else for (const contender of contenders) await requireFsync(contender);
  const costs = await compare([CEILING, ...contenders], rounds, { connections: 64 });
  const { name: worker } = BY_HAND.leanWorker;
  const throughput = relative(costs, "perSecond", OURS_NAME, worker);
  return {
    title: "A stored plant",
    about: "64 connections, ascending ids, an fsync before each 200 (plant-store, by hand and Go: one for each batch).",
    ...costTable(costs, "program", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["plants/s", "perSecond", 0],
      ["p50 ms", "p50Ms", 2],
      ["p99 ms", "p99Ms", 2],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [...cpuGoals(costs), outcome(`plants/s / ${worker}`, throughput, GOALS.throughputToLeanWorker, "least")],
    missing,
  };
}

/** CPU of a stored plant beside the lean programs by hand. */
export function cpuGoals(costs: Costs): Outcome[] {
  const goal = (base: string, limit: number) =>
    outcome(`CPU / ${base}`, relative(costs, "cpuMicros", OURS_NAME, base), limit);
  return [goal(BY_HAND.leanWorker.name, GOALS.cpuToLeanWorker), goal(BY_HAND.lean.name, GOALS.cpuToLean)];
}
