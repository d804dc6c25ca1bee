import type { Contender } from "../contenders.ts";
import { type Outcome, outcome, type Section } from "../report.ts";
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
  return {
    title,
    about,
    columns: ["", unit, `/ ${base}`],
    rows: [base, ...others].map((name) => {
      return [name, digits(median(figures(costs, name, figure))), median(toBase(name)).toFixed(2)];
    }),
    costs: Object.fromEntries(costs),
    goals: others.map((name): Outcome => outcome(`${name} / ${base}`, toBase(name), limit)),
  };
}
