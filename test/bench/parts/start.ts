import { join } from "node:path";
import { emptyDirectory } from "../../support/program.ts";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { outcome, type Section } from "../report.ts";
import { stop } from "../run_load.ts";

/** How long the executable takes to its first 200, by `start.ts`. */
export async function start({ rounds }: { readonly rounds: number }, plants: number): Promise<Section> {
  const rows = parseRows(await runToEnd([`--rounds=${rounds}`, `--most=${plants}`, ...ours().program]));
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

/** It is ended by a signal with all that it started, and its files are in a directory that goes, too. */
async function runToEnd(args: readonly string[]): Promise<string> {
  stop.signal.throwIfAborted();
  using directory = emptyDirectory();
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "../start.ts"), ...args], {
    env: { ...process.env, TMPDIR: directory.path },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    detached: true,
  });
  const endGroup = () => process.kill(-child.pid, "SIGKILL");
  stop.signal.addEventListener("abort", endGroup);
  const output = await new Response(child.stdout).text();
  const exitCode = await child.exited;
  stop.signal.removeEventListener("abort", endGroup);
  stop.signal.throwIfAborted();
  if (exitCode !== 0) throw new Error("test/bench/start.ts ended early");
  return output;
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
