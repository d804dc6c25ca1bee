import { emptyDirectory } from "../../support/program.ts";
import { type Contender, ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { makeTokens } from "../prefilled.ts";
import { type Section, thousands } from "../report.ts";
import type { Rounds } from "../rounds.ts";
import { pairs } from "./pairs.ts";

/** Whether a plant costs more where many tokens are known. */
export async function tokens(rounds: Rounds): Promise<Section> {
  using few = emptyDirectory();
  using many = emptyDirectory();
  return await pairs(
    {
      title: "The number of tokens",
      about: "CPU of a plant at 64 connections, with few and with many tokens stored.",
      contenders: [withTokens(few.path, 10), withTokens(many.path, 100_000)],
      load: { connections: 64 },
      figure: ({ cpuMicros }) => cpuMicros,
      unit: "CPU µs/plant",
      limit: GOALS.tokens,
    },
    rounds,
  );
}

function withTokens(cwd: string, count: number): Contender {
  makeTokens(cwd, count);
  return ours({ name: `${thousands(count)} tokens`, cwd });
}
