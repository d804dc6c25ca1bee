/**
 * Fails if CPU per stored plant, or of a refused request, is further above its goal than `GATE`
 * allows. Three attempts, of which the best counts: noise only ever adds.
 *
 * `bun run build && bun test/bench/gate.ts`
 */
import { installPeers, LEAN_ELYSIA, ours } from "./contenders.ts";
import { GATE } from "./goals.ts";
import { refused } from "./parts/refused.ts";
import { cpuGoals } from "./parts/stored.ts";
import { type Outcome, table } from "./report.ts";
import { compare, type Rounds } from "./rounds.ts";

const ROUNDS: Rounds = { rounds: 1, warmUp: 3, seconds: 1 };
const ATTEMPTS = 3;

const stored = await best(storedGoals, () => GATE.stored);
const refusals = await best(
  async () => (await refused(ROUNDS)).goals ?? [],
  ({ goal }) => (/not JSON|not a plant/.test(goal) ? GATE.refusedBody : GATE.refused),
);
process.exitCode = stored && refusals ? 0 : 1;

async function storedGoals(): Promise<readonly Outcome[]> {
  await installPeers();
  return cpuGoals(await compare([ours(), LEAN_ELYSIA], ROUNDS, { connections: 64 }));
}

/** Whether each goal was met in some attempt, give or take its factor. */
async function best(
  measure: () => Promise<readonly Outcome[]>,
  factorOf: (outcome: Outcome) => number,
): Promise<boolean> {
  const lowest = new Map<string, number>();
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const outcomes = await measure();
    for (const { goal, value } of outcomes)
      lowest.set(goal, Math.min(value, lowest.get(goal) ?? Infinity));
    const bounds = outcomes.map((outcome) => ({
      ...outcome,
      bound: outcome.limit * factorOf(outcome),
    }));
    const rows = bounds.map(({ goal, limit, bound }) =>
      row(goal, lowest.get(goal) ?? Infinity, limit, bound),
    );

    console.log(`${table(["", "best", "goal", "bound", ""], rows)}\n`);
    if (bounds.every(({ goal, bound }) => (lowest.get(goal) ?? Infinity) <= bound)) return true;
  }

  return false;
}

function row(goal: string, value: number, limit: number, bound: number): string[] {
  return [
    goal,
    ...[value, limit, bound].map((figure) => figure.toFixed(2)),
    value <= bound ? "" : "too much",
  ];
}
