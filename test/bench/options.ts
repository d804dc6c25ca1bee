import { parseArgs } from "node:util";
import type { Rounds } from "./rounds.ts";

/** What a run measures, and how long. */
export interface Options {
  /** The parts, by name. */
  readonly parts: readonly string[];
  readonly rounds: Rounds;
  /** How many plants are stored before, where that matters. */
  readonly plants: number;
  /** The directory for the JSON. */
  readonly out: string;
  /** The directory for the charts. */
  readonly charts: string;
}

const FULL: Rounds = { rounds: 5, warmUp: 8, seconds: 3 };
const QUICK: Rounds = { rounds: 2, warmUp: 2, seconds: 1 };

/**
 * Reads the command line.
 *
 * @throws {Error} If a flag is unknown or its value of no use.
 */
export function parseOptions(args: readonly string[], parts: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      part: { type: "string", multiple: true, default: [...parts] },
      quick: { type: "boolean", default: false },
      rounds: { type: "string" },
      "warm-up": { type: "string" },
      seconds: { type: "string" },
      stored: { type: "string", default: "1000000" },
      out: { type: "string", default: "dist" },
      charts: { type: "string" },
    },
  });
  const unknown = values.part.find((part) => !parts.includes(part));
  if (unknown !== undefined) throw new Error(`Cannot measure --part "${unknown}": expected ${parts.join(", ")}`);
  const preset = values.quick ? QUICK : FULL;
  const rounds = {
    rounds: count("rounds", values.rounds, preset.rounds),
    warmUp: count("warm-up", values["warm-up"], preset.warmUp),
    seconds: count("seconds", values.seconds, preset.seconds),
  };
  const { part: chosen, stored, out, charts = out } = values;
  return { parts: chosen, rounds, plants: count("stored", stored, 0), out, charts };
}

function count(flag: string, text: string | undefined, preset: number): number {
  if (text === undefined) return preset;
  if (/^[1-9]\d*$/.test(text)) return Number(text);
  throw new Error(`Cannot use --${flag} "${text}": expected a positive integer`);
}
