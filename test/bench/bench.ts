/**
 * What the service costs, beside programs by hand and on other frameworks: CPU from /proc (so Linux
 * only), on loopback, with fsync on. Prints tables, and writes JSON and the chart.
 *
 * `bun run bench [--part stored|refused|lone|start|growth|bulk|tokens|postgres|pocketbase]... [--quick]
 * [--stored 1000000] [--charts dist]`
 */
import { closeSync, fdatasyncSync, mkdirSync, openSync, writeFileSync, writeSync } from "node:fs";
import { availableParallelism, cpus, release } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { emptyDirectory } from "../support/program.ts";
import { chart } from "./chart.ts";
import { BY_HAND, ELYSIA_DRIZZLE, HONO, LEAN_ELYSIA, OURS_NAME } from "./contenders.ts";
import { bulk } from "./parts/bulk.ts";
import { growth } from "./parts/growth.ts";
import { lone } from "./parts/lone.ts";
import { pocketbase } from "./parts/pocketbase.ts";
import { postgres } from "./parts/postgres.ts";
import { refused } from "./parts/refused.ts";
import { start } from "./parts/start.ts";
import { stored } from "./parts/stored.ts";
import { tokens } from "./parts/tokens.ts";
import { median, overall, render, type Section } from "./report.ts";
import type { Costs, Rounds } from "./rounds.ts";
import { stop } from "./run_load.ts";

type Part = (rounds: Rounds, plants: number) => Promise<Section>;

const PARTS: Readonly<Record<string, Part>> = {
  stored,
  refused,
  lone,
  start,
  growth,
  bulk,
  tokens,
  postgres,
  pocketbase,
};

const FULL: Rounds = { rounds: 5, warmUp: 8, seconds: 3 };
const QUICK: Rounds = { rounds: 2, warmUp: 2, seconds: 1 };

/**
 * What the README shows beside the service: by hand, and as the documentation of two frameworks has
 * it.
 */
const CHARTED = [
  BY_HAND.leanWorker.name,
  LEAN_ELYSIA.name,
  OURS_NAME,
  HONO.name,
  ELYSIA_DRIZZLE.name,
];

const { values: flags } = parseArgs({
  options: {
    part: { type: "string", multiple: true, default: Object.keys(PARTS) },
    quick: { type: "boolean", default: false },
    /** How many plants are stored before, where that matters; `growth` has ten times as many, too. */
    stored: { type: "string", default: "1000000" },
    charts: { type: "string", default: "dist" },
  },
});

// A signal ends the load, and that everything: what is in use is gone at the end of its scope.
await main(flags.quick ? QUICK : FULL).catch((cause: unknown) => {
  if (!stop.signal.aborted) throw cause;
  process.exitCode = 130;
});

async function main(rounds: Rounds): Promise<void> {
  const machine = describeMachine();
  console.log(`${machine}\n${rounds.rounds} rounds of ${rounds.seconds} s, medians.\n`);
  for (const directory of ["dist", flags.charts]) mkdirSync(directory, { recursive: true });

  const parts = flags.part.map((name) => {
    const measure = PARTS[name];
    if (measure !== undefined) return { name, measure };
    throw new Error(`Cannot measure --part ${name}: expected ${Object.keys(PARTS).join(", ")}`);
  });

  const sections: Record<string, object> = {};
  for (const { name, measure } of parts) {
    const section = await measure(rounds, Number(flags.stored));
    sections[name] = { ...section, costs: Object.fromEntries(section.costs ?? []) };
    console.log(render(section));
    writeFileSync("dist/bench.json", JSON.stringify({ machine, rounds, sections }, null, 2));
    if (name === "stored" && section.costs !== undefined) drawCharts(section.costs, flags.charts);
  }
}

/** Whatever makes two machines' figures differ, in a line. */
function describeMachine(): string {
  const cores = `${availableParallelism()} cores of ${cpus()[0]?.model}`;
  return `${cores}, Linux ${release()}, Bun ${Bun.version}, ${fsyncMicros().toFixed(0)} µs an fsync of 4 KiB`;
}

function fsyncMicros(): number {
  using directory = emptyDirectory();
  const file = openSync(join(directory.path, "fsync"), "w");

  const micros = Array.from({ length: 200 }, () => {
    const start = performance.now();
    writeSync(file, new Uint8Array(4096));
    fdatasyncSync(file);
    return (performance.now() - start) * 1_000;
  });

  closeSync(file);
  return median(micros);
}

/** One for light pages and one for dark ones: the README shows what fits. */
function drawCharts(costs: Costs, directory: string): void {
  const micros = (name: string) => overall(costs, name, "cpuMicros");
  const bars = CHARTED.map((name) => ({
    name,
    micros: micros(name),
    perSecond: overall(costs, name, "perSecond"),
  }));
  const times = (micros(ELYSIA_DRIZZLE.name) / micros(OURS_NAME)).toFixed(1);
  const headline = `With one transaction a request, a plant costs ${times} times the CPU`;

  for (const theme of ["light", "dark"] as const) {
    writeFileSync(
      join(directory, `chart-${theme}.svg`),
      chart(bars, { theme, headline, emphasized: OURS_NAME }),
    );
  }
}
