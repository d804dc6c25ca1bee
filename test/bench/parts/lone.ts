import { ELYSIA_DRIZZLE, installPeers, ours, OURS_NAME } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { costTable, outcome, type Section } from "../report.ts";
import { compare, relative, type Rounds } from "../rounds.ts";

/** How long one lone client waits, beside one transaction a request. */
export async function lone(rounds: Rounds): Promise<Section> {
  await installPeers();
  const costs = await compare([ELYSIA_DRIZZLE, ours()], rounds, { connections: 1 });
  const toOther = relative(costs, "p50Ms", OURS_NAME, ELYSIA_DRIZZLE.name);

  return {
    title: "One lone client",
    about: "The time from a request to its response, with one connection.",
    ...costTable(costs, "program", [
      ["p50 ms", "p50Ms", 3],
      ["p99 ms", "p99Ms", 2],
      ["peak MB", "peakMB", 0],
    ]),
    goals: [outcome(`p50 / ${ELYSIA_DRIZZLE.name}`, toOther, GOALS.lone)],
  };
}
