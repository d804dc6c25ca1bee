import type { Contender } from "../contenders.ts";
import { type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, figures, type Rounds } from "../rounds.ts";
import type { LoadOptions } from "../run_load.ts";
import type { Cost } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

/** Two or more programs that differ in one thing. */
export interface Pairs extends Pick<Section, "title" | "about"> {
  /** The first is what the others are compared with. */
  readonly contenders: readonly Contender[];
  readonly load: Omit<LoadOptions, "seconds">;
  readonly figure: (cost: Cost) => number;
  /** What the figure is called. */
  readonly unit: string;
  /** The most that any of the others may be, in times the first. */
  readonly limit: number;
}

/** Compares one figure of programs with that of the first one. */
export async function pairs(
  { title, about, contenders, load, figure, unit, limit }: Pairs,
  rounds: Rounds,
): Promise<Section> {
  const costs = await compare(contenders, rounds, load);
  const [base = "", ...others] = contenders.map(({ name }) => name);
  const toBase = (name: string) => ratios(figures(costs, name, figure), figures(costs, base, figure));
  const digits = (value: number) => value.toFixed(value < 10 ? 3 : 1);
  const p99 = (name: string) => median(figures(costs, name, ({ p99Ms }) => p99Ms)).toFixed(2);
  const peak = (name: string) => Math.max(...figures(costs, name, ({ peakMemory }) => peakMemory)) / 1e6;
  return {
    title,
    about,
    columns: ["", unit, `/ ${base}`, "p99 ms", "peak MB"],
    rows: [base, ...others].map((name) => {
      const value = digits(median(figures(costs, name, figure)));
      return [name, value, median(toBase(name)).toFixed(2), p99(name), thousands(peak(name))];
    }),
    costs: Object.fromEntries(costs),
    goals: others.map((name): Outcome => outcome(`${name} / ${base}`, toBase(name), limit)),
  };
}
