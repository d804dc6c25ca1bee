import { type Costs, figures } from "./rounds.ts";
import type { Cost } from "./servers.ts";

/** One part of the benchmark: what `bun run bench` prints, and the JSON file keeps. */
export interface Section {
  readonly title: string;
  /** What was done, in a sentence. */
  readonly about: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** @default none */
  readonly goals?: readonly Outcome[];
  /** What could not be measured, and why. @default none */
  readonly missing?: readonly string[];
  /** All that was measured, by name and round, for the JSON file. @default what the rows have */
  readonly costs?: Costs;
}

/** How a goal fared. */
export interface Outcome {
  readonly goal: string;
  /** The median of the rounds. */
  readonly value: number;
  /** The lowest and the highest round. */
  readonly range: readonly [number, number];
  readonly limit: number;
  readonly met: boolean;
}

/** Compares the median of the rounds with the most, or the least, that the goal allows. */
export function outcome(
  goal: string,
  values: readonly number[],
  limit: number,
  is: "most" | "least" = "most",
): Outcome {
  const value = median(values);
  const range = [Math.min(...values), Math.max(...values)] as const;
  return { goal, value, range, limit, met: is === "most" ? value <= limit : value >= limit };
}

/** A section as Markdown. */
export function render({ title, about, columns, rows, goals = [], missing = [] }: Section): string {
  const parts = [`## ${title}`, about];
  if (rows.length > 0) parts.push(table(columns, rows));
  if (missing.length > 0) parts.push(missing.map((reason) => `Not measured: ${reason}`).join("\n"));
  if (goals.length > 0)
    parts.push(table(["goal", "measured", "range", "limit", ""], goals.map(outcomeRow)));
  return `${parts.join("\n\n")}\n`;
}

function outcomeRow({ goal, value, range, limit, met }: Outcome): string[] {
  return [goal, ratio(value), range.map(ratio).join(" to "), ratio(limit), met ? "met" : "not met"];
}

function ratio(value: number): string {
  return value.toFixed(value < 10 ? 2 : 1);
}

/**
 * A Markdown table whose columns are aligned in plain text, too: the first to the left, the others
 * to the right.
 */
export function table(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = columns.map((name, index) =>
    Math.max(3, name.length, ...rows.map((row) => row[index]?.length ?? 0)),
  );
  const line = (cells: readonly string[]) =>
    `| ${widths.map((width, index) => pad(cells[index] ?? "", width, index)).join(" | ")} |`;
  const rule = widths.map((width, index) =>
    index === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );

  return [line(columns), line(rule), ...rows.map(line)].join("\n");
}

function pad(cell: string, width: number, index: number): string {
  return index === 0 ? cell.padEnd(width) : cell.padStart(width);
}

/** A column of figures: its title, and which figure it shows with how many digits. */
export type Column = readonly [title: string, figure: keyof Cost, digits: number];

/** Costs as a table, with a row for each name. */
export function costTable(costs: Costs, what: string, columns: readonly Column[]) {
  return {
    columns: [what, ...columns.map(([title]) => title)],
    rows: Array.from(costs.keys(), (name) => [
      name,
      ...columns.map(([, figure, digits]) => thousands(overall(costs, name, figure), digits)),
    ]),
    costs,
  };
}

/** The median of the rounds; of the longest wait and of the memory, the most. */
export function overall(costs: Costs, name: string, figure: keyof Cost): number {
  const all = figures(costs, name, figure);
  return figure === "maxMs" || figure === "peakMB" ? Math.max(...all) : median(all);
}

/** The middle value, or the mean of the two in the middle; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return (
    ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2
  );
}

/** A number with its thousands apart. */
export function thousands(value: number, digits = 0): string {
  return value.toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}
