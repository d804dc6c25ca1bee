import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { join } from "node:path";

import { membersOf } from "../../support/plants.ts";
import { emptyDirectory } from "../../support/program.ts";
import { ours, OURS_NAME } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { MONSTERA } from "../prefilled.ts";
import { median, outcome, type Section, thousands } from "../report.ts";
import { ratios, type Rounds } from "../rounds.ts";
import { stop } from "../run_load.ts";

const BY_HAND = "a loop by hand";

/** A program that imports and exports. */
type Programs = ReadonlyMap<string, readonly string[]>;

/** How long importing plants into a new file takes, and exporting them again. */
export async function bulk({ rounds }: Rounds, plants: number): Promise<Section> {
  using directory = emptyDirectory();
  const file = directory.at("plants.ndjson");
  await writePlants(file, plants);

  const programs: Programs = new Map([
    [BY_HAND, [process.execPath, join(import.meta.dir, "../by_hand_bulk.ts")]],
    [OURS_NAME, ours().program],
  ]);
  const importing = new Map(Array.from(programs.keys(), (name) => [name, [] as number[]]));
  const exporting = new Map(Array.from(programs.keys(), (name) => [name, [] as number[]]));

  for (let round = 0; round < rounds; round++) {
    for (const [name, program] of programs) {
      using cwd = emptyDirectory();
      importing.get(name)?.push(await milliseconds([...program, "import", file], cwd.path));
      exporting.get(name)?.push(await milliseconds([...program, "export"], cwd.path));
    }
  }

  const row = (what: string, taken: ReadonlyMap<string, readonly number[]>) => [
    what,
    ...Array.from(taken.values(), (ms) => thousands(median(ms))),
  ];
  const goal = (what: string, taken: ReadonlyMap<string, readonly number[]>) =>
    outcome(
      `ms of ${what} / by hand`,
      ratios(taken.get(OURS_NAME) ?? [], taken.get(BY_HAND) ?? []),
      GOALS.bulk,
    );

  return {
    title: "Import and export",
    about: `Milliseconds for ${thousands(plants)} plants of ascending ids, from the start of the program to its end.`,
    columns: ["command", ...Array.from(programs.keys(), (name) => `${name}, ms`)],
    rows: [row("import", importing), row("export", exporting)],
    goals: [goal("import", importing), goal("export", exporting)],
  };
}

async function writePlants(file: string, plants: number): Promise<void> {
  const members = membersOf(MONSTERA);
  const stream = createWriteStream(file);
  for (let id = 1; id <= plants; id++) {
    const isFull = !stream.write(`{"id":${id},${members}}\n`);
    if (isFull) await once(stream, "drain");
  }
  stream.end();
  await once(stream, "finish");
}

/** How long a program runs. */
async function milliseconds(command: readonly string[], cwd: string): Promise<number> {
  stop.signal.throwIfAborted();
  const begin = performance.now();
  const child = Bun.spawn([...command], {
    cwd,
    env: { PATH: process.env["PATH"] ?? "" },
    stdout: Bun.file(join(cwd, "output")),
    stderr: "pipe",
    signal: stop.signal,
  });
  if ((await child.exited) !== 0)
    throw new Error(`${command.join(" ")}:\n${await new Response(child.stderr).text()}`);

  return performance.now() - begin;
}
