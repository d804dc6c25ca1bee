/**
 * What the service costs, beside programs by hand, on other frameworks and on other runtimes: CPU from /proc (so Linux
 * only), on loopback, with fsync on. Prints tables, and writes JSON and the chart.
 *
 * `bun run bench [--part stored|refused|disk|lone|start|growth|tokens|postgres]... [--quick] [--rounds 5] [--warm-up 8]
 * [--seconds 3] [--stored 1000000] [--out dist] [--charts dist]`
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Bar, chart } from "./chart.ts";
import { OURS_NAME } from "./contenders.ts";
import { describeMachine } from "./machine.ts";
import { type Options, parseOptions } from "./options.ts";
import { disk } from "./parts/disk.ts";
import { growth } from "./parts/growth.ts";
import { lone } from "./parts/lone.ts";
import { postgres } from "./parts/postgres.ts";
import { refused } from "./parts/refused.ts";
import { start } from "./parts/start.ts";
import { stored } from "./parts/stored.ts";
import { tokens } from "./parts/tokens.ts";
import { render, type Section } from "./report.ts";
import type { Rounds } from "./rounds.ts";
import { GENERATOR, stop } from "./run_load.ts";

type Part = (rounds: Rounds, plants: number) => Promise<Section & { readonly bars?: readonly Bar[] }>;

const PARTS: Readonly<Record<string, Part>> = { stored, refused, disk, lone, start, growth, tokens, postgres };

// A signal ends the load, and that everything: what is in use is gone at the end of its scope.
await main(readOptions()).catch((cause: unknown) => {
  if (!stop.signal.aborted) throw cause;
  process.exitCode = 130;
});

/** What is wrong with the command line is said in one line. */
function readOptions(): Options {
  try {
    return parseOptions(process.argv.slice(2), Object.keys(PARTS));
  } catch (cause) {
    console.error(cause instanceof Error ? cause.message : cause);
    process.exit(2);
  }
}

async function main({ parts, rounds, plants, out, charts }: Options): Promise<void> {
  const machine = describeMachine();
  console.log(`${machine}\n${rounds.rounds} rounds of ${rounds.seconds} s, medians. Load by ${GENERATOR}.\n`);
  for (const directory of [out, charts]) mkdirSync(directory, { recursive: true });
  const sections: Record<string, Section> = {};
  for (const name of parts) {
    const { bars, ...section } = (await PARTS[name]?.(rounds, plants)) ?? never(name);
    sections[name] = section;
    console.log(render(section));
    writeFileSync(
      join(out, "bench.json"),
      JSON.stringify({ machine, generator: GENERATOR, rounds, sections }, null, 2),
    );
    if (bars !== undefined) drawCharts(bars, charts);
  }
}

/** One for light pages and one for dark ones: the README shows what fits. */
function drawCharts(bars: readonly Bar[], directory: string): void {
  for (const theme of ["light", "dark"] as const) {
    writeFileSync(join(directory, `chart-${theme}.svg`), chart(bars, { theme, emphasized: OURS_NAME }));
  }
}

function never(name: string): never {
  throw new Error(`There is no part "${name}"`);
}
