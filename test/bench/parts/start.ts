import { join } from "node:path";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { outcome, type Section } from "../report.ts";
import { stop } from "../run_load.ts";

/** How long the executable takes to its first 200, by `start.ts`. */
export async function start({ rounds }: { readonly rounds: number }, plants: number): Promise<Section> {
  const args = [`--rounds=${rounds}`, `--most=${plants}`, ...ours().program];
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "../start.ts"), ...args], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    signal: stop.signal,
  });
  const rows = parseRows(await new Response(child.stdout).text());
  stop.signal.throwIfAborted();
  if ((await child.exited) !== 0) throw new Error("test/bench/start.ts ended early");
  return {
    title: "Start",
    about: "Milliseconds from the start of the executable to its first 200. The files are in the page cache.",
    columns: ["stored plants", "ms, median (lowest to highest)"],
    rows,
    goals: rows.map(([plants = "", taken = ""]) =>
      outcome(`ms with ${plants} plants`, numbersOf(taken), GOALS.startMs),
    ),
  };
}

/** The rows of a Markdown table without its head. */
function parseRows(markdown: string): string[][] {
  const lines = markdown.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) =>
    line
      .slice(1, line.lastIndexOf("|"))
      .split("|")
      .map((cell) => cell.trim()),
  );
}

function numbersOf(text: string): number[] {
  return Array.from(text.matchAll(/\d+/g), ([digits]) => Number(digits));
}
