import { emptyDirectory } from "../../support/program.ts";
import type { Bar } from "../chart.ts";
import { BY_HAND, CEILING, type Contender, ours, OURS_NAME } from "../contenders.ts";
import { canRequireFsync, requireFsync } from "../durability.ts";
import { GOALS } from "../goals.ts";
import { preparePeers } from "../peers.ts";
import { type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, type Costs, figures, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

/** What a stored plant costs at 64 connections, beside the same by hand, on other frameworks and on other runtimes. */
export async function stored(rounds: Rounds): Promise<Section & { readonly bars: readonly Bar[] }> {
  using directory = emptyDirectory();
  const peers = await preparePeers(directory.path);
  const contenders = [ours(), ...Object.values(BY_HAND), ...peers.contenders];
  if (canRequireFsync) for (const contender of contenders) await requireFsync(contender);
  const costs = await compare([...contenders, CEILING], rounds, { connections: 64 });
  const missing = canRequireFsync
    ? peers.missing
    : [...peers.missing, "whether each program fsyncs before its 200: there is no C compiler (cc)"];
  return { ...describe([...contenders, CEILING], costs), missing };
}

function describe(contenders: readonly Contender[], costs: Costs) {
  const bars = contenders
    .map((contender) => barOf(contender, costs))
    .toSorted((one, other) => one.micros - other.micros);
  return {
    title: "A stored plant",
    about: "64 connections, ascending ids, an fsync before each 200 (plant-store, by hand and Go: one for each batch).",
    columns: ["program", "CPU µs/plant", "plants/s", "p50 ms", "p99 ms", "peak MB"],
    rows: bars.map((bar) => row(bar, costs)),
    goals: [...cpuGoals(costs), throughputGoal(costs)],
    costs: Object.fromEntries(costs),
    bars,
  };
}

function barOf({ name }: Contender, costs: Costs): Bar {
  const of = (figure: (cost: Cost) => number) => median(figures(costs, name, figure));
  return { name, micros: of(({ cpuMicros }) => cpuMicros), perSecond: of(({ perSecond }) => perSecond) };
}

function row({ name, micros, perSecond }: Bar, costs: Costs): string[] {
  const of = (figure: (cost: Cost) => number) => median(figures(costs, name, figure));
  const [p50, p99] = [of(({ p50Ms }) => p50Ms), of(({ p99Ms }) => p99Ms)];
  const peak = Math.max(...figures(costs, name, ({ peakMemory }) => peakMemory)) / 1e6;
  return [name, micros.toFixed(1), thousands(perSecond), p50.toFixed(2), p99.toFixed(2), thousands(peak)];
}

/** CPU of a stored plant beside the lean programs by hand. */
export function cpuGoals(costs: Costs): Outcome[] {
  const cpu = (name: string) => figures(costs, name, ({ cpuMicros }) => cpuMicros);
  const [lean, worker] = [BY_HAND.lean.name, BY_HAND.leanWorker.name];
  return [
    outcome(`CPU / ${worker}`, ratios(cpu(OURS_NAME), cpu(worker)), GOALS.cpuToLeanWorker),
    outcome(`CPU / ${lean}`, ratios(cpu(OURS_NAME), cpu(lean)), GOALS.cpuToLean),
  ];
}

function throughputGoal(costs: Costs): Outcome {
  const rate = (name: string) => figures(costs, name, ({ perSecond }) => perSecond);
  const { name } = BY_HAND.leanWorker;
  return outcome(`plants/s / ${name}`, ratios(rate(OURS_NAME), rate(name)), GOALS.throughputToLeanWorker, "least");
}
