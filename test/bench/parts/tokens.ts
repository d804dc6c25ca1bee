import { emptyDirectory } from "../../support/program.ts";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { makeTokens } from "../prefilled.ts";
import { costTable, outcome, type Section, thousands } from "../report.ts";
import { compare, relative, type Rounds } from "../rounds.ts";

/** Whether a plant costs more where many tokens are known. */
export async function tokens(rounds: Rounds): Promise<Section> {
  using stack = new DisposableStack();
  const contenders = [10, 100_000].map((count) => {
    const cwd = stack.use(emptyDirectory()).path;
    makeTokens(cwd, count);
    return ours({ name: `${thousands(count)} tokens`, cwd });
  });

  const costs = await compare(contenders, rounds, { connections: 64 });
  const [few = "", many = ""] = contenders.map(({ name }) => name);

  return {
    title: "The number of tokens",
    about: "CPU of a plant at 64 connections, with few and with many tokens stored.",
    ...costTable(costs, "stored", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["p99 ms", "p99Ms", 2],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [
      outcome(`CPU with ${many} / ${few}`, relative(costs, "cpuMicros", many, few), GOALS.tokens),
    ],
  };
}
