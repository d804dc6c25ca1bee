import { post } from "../../support/client.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, startServer } from "../../support/program.ts";
import { CREDENTIALS, ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { makePlants } from "../prefilled.ts";
import { median, outcome, type Section, thousands } from "../report.ts";
import type { Rounds } from "../rounds.ts";
import { stop } from "../run_load.ts";

/** How long the executable takes to its first 200, and whether that grows with the file. */
export async function start({ rounds }: Rounds, plants: number): Promise<Section> {
  using filled = emptyDirectory();
  makePlants(filled.path, plants);
  const taken = new Map<string, number[]>([
    ["a new file", []],
    [`${thousands(plants)} plants`, []],
  ]);

  for (let round = 0; round < rounds; round++) {
    using empty = emptyDirectory();
    const [onNew, onFilled] = taken.values();
    onNew?.push(await startMs(empty.path));
    onFilled?.push(await startMs(filled.path));
  }

  return {
    title: "Start",
    about:
      "Milliseconds from the start of the executable to its first 200. The files are in the page cache.",
    columns: ["database", "ms", "lowest", "highest"],
    rows: Array.from(taken, ([name, ms]) => [
      name,
      ...[median(ms), Math.min(...ms), Math.max(...ms)].map((figure) => figure.toFixed(0)),
    ]),
    goals: Array.from(taken, ([name, ms]) => outcome(`ms with ${name}`, ms, GOALS.startMs)),
  };
}

async function startMs(cwd: string): Promise<number> {
  stop.signal.throwIfAborted();
  const begin = performance.now();
  await using server = await startServer({ program: ours().program, cwd, env: CREDENTIALS });
  const response = await post(server.url, fern({ id: -Math.ceil(Math.random() * 1e15) }));
  const taken = performance.now() - begin;

  if (response.status !== 200) throw new Error(`Expected 200, got ${response.status}`);
  server.child.kill("SIGTERM");
  await server.child.exited;
  return taken;
}
