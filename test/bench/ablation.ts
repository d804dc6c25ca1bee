/**
 * What each part of storing a plant costs: the service from its source beside copies of it that lack
 * one part each, in interleaved rounds, over sockets and with fsync on. Run by hand: it takes a
 * quarter of an hour.
 *
 * `bun test/bench/ablation.ts`
 */
import { reasonOf } from "../../src/errors.ts";
import { mutant } from "../support/mutant.ts";
import { ABLATED_PARTS } from "./ablated_parts.ts";
import { installPeers, LEAN_ELYSIA } from "./contenders.ts";
import { table } from "./report.ts";
import { compare, figures, type Rounds } from "./rounds.ts";

const ROUNDS: Rounds = { rounds: 20, warmUp: 5, seconds: 1 };

const WHOLE = "the whole service";
/** The whole service once more: its distance to the first shows how far to trust the others. */
const CONTROL = "nothing";

await main();

async function main(): Promise<void> {
  await installPeers();
  using copies = new DisposableStack();
  // In the middle: rounds start from either end, and what was measured just before is compiled.
  const middle = Math.floor(ABLATED_PARTS.length / 2);
  const ablated = ABLATED_PARTS.toSpliced(middle, 0, { name: WHOLE, without: [] });
  const contenders = [...ablated, { name: CONTROL, without: [] }].flatMap(({ name, without }) => {
    try {
      return [{ name, program: copies.use(mutant(without)).program }];
    } catch (error) {
      // The source moves on; the other parts can still be measured.
      console.error(`Skipped "${name}": ${reasonOf(error)}`);
      return [];
    }
  });

  const costs = await compare([...contenders, LEAN_ELYSIA], ROUNDS, { connections: 64 });
  const micros = (name: string) => lowerQuartile(figures(costs, name, "cpuMicros"));
  const whole = micros(WHOLE);

  const rows = Array.from(costs.keys(), (name) => {
    const saved = whole - micros(name);
    return [name, saved.toFixed(1), `${((100 * saved) / whole).toFixed(0)} %`];
  });
  console.log(`${WHOLE}: ${whole.toFixed(1)} µs of CPU for each plant\n`);
  console.log(table(["without", "less µs", "less CPU"], rows));
}

/** Other load on the machine only adds to a cost. */
function lowerQuartile(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 4)] ?? Number.NaN;
}
