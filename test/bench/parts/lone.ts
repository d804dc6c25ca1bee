import { ELYSIA_DRIZZLE, ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { installPeers } from "../peers.ts";
import type { Section } from "../report.ts";
import type { Rounds } from "../rounds.ts";
import { pairs } from "./pairs.ts";

/** How long one lone client waits, beside one transaction a request. */
export async function lone(rounds: Rounds): Promise<Section> {
  await installPeers();
  return await pairs(
    {
      title: "One lone client",
      about: "The time from a request to its response, with one connection.",
      contenders: [ELYSIA_DRIZZLE, ours()],
      load: { connections: 1 },
      figure: ({ p50Ms }) => p50Ms,
      unit: "p50 ms",
      limit: GOALS.lone,
    },
    rounds,
  );
}
