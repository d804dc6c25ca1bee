import { emptyDirectory } from "../../support/program.ts";
import { type Contender, ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { makePlants } from "../prefilled.ts";
import { type Section, thousands } from "../report.ts";
import type { Rounds } from "../rounds.ts";
import { pairs } from "./pairs.ts";

/** The table that a larger one is compared with. */
const FEW_PLANTS = 1_000_000;

/** What a plant of a random id costs over many stored ones, beside ascending ids on a new file. */
export async function growth(rounds: Rounds, plants: number): Promise<Section> {
  using stack = new DisposableStack();
  const sizes = plants > FEW_PLANTS ? [FEW_PLANTS, plants] : [plants];
  return await pairs(
    {
      title: "Growth",
      about: "CPU of a plant at 64 connections. The files are in the page cache.",
      contenders: [
        ours({ name: "ascending ids, new file" }),
        ours({ name: "random ids, new file", ids: "random" }),
        ...sizes.map((size) => overStored(stack.use(emptyDirectory()).path, size)),
      ],
      load: { connections: 64 },
      figure: ({ cpuMicros }) => cpuMicros,
      unit: "CPU µs/plant",
      limit: GOALS.growth,
    },
    rounds,
  );
}

function overStored(cwd: string, plants: number): Contender {
  makePlants(cwd, plants);
  const name = `random ids, ${thousands(plants)} stored`;
  // The check for corruption reads the whole file, for seconds.
  return ours({ name, ids: "random", cwd, settled: /Integrity check passed/ });
}
