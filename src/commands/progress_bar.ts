import type { Progress } from "../database/adapter.ts";
import { counted, grouped } from "./formatting.ts";
import type { Io } from "./terminal.ts";

const INTERVAL_MS = 100;
/** Goes to the beginning of the line, and erases it (ECMA-48: CR, EL). */
const ERASE = "\r\x1b[K";
/**
 * A narrow terminal cuts the line between these (DEC private mode 7, autowrap). It must not wrap,
 * because only one line is erased. Its last character stays in the last column: a space.
 */
const [NO_WRAP, WRAP] = ["\x1b[?7l", " \x1b[?7h"];

/**
 * A line at the bottom of a terminal that shows how much is done, the time left, and how many
 * plants a second. There is none unless the terminal understands escape sequences.
 */
export function progressBar(
  { stderr, isAnsi }: Pick<Io, "stderr" | "isAnsi">,
  now: () => number = () => performance.now(),
) {
  const begin = now();
  let due = begin + INTERVAL_MS;
  let line = "";

  function draw(text: string): void {
    const drawn = text === "" ? "" : `${NO_WRAP}${text}${WRAP}`;
    if (drawn !== line) stderr(`${ERASE}${drawn}`);
    line = drawn;
  }

  return {
    /** Draws the line, ten times a second at most. */
    update(state: Progress): void {
      if (!isAnsi || now() < due) return;
      due = now() + INTERVAL_MS;
      draw(progressLine(state, (now() - begin) / 1000));
    },

    /** Prints a message above the line, where it stays. */
    print(text: string): void {
      if (text !== "") stderr(line === "" ? text : `${ERASE}${text}${line}`);
    },
    clear: () => draw(""),
  };
}

/** @param elapsed In seconds. */
function progressLine({ plants, done = plants ?? 0, total }: Progress, elapsed: number): string {
  const rate = plants === undefined ? "" : rateOf(plants, elapsed);
  if (total === undefined || done === 0) return rate;

  const share = Math.min(1, done / total);
  const bar = "#".repeat(Math.floor(share * BAR_WIDTH)).padEnd(BAR_WIDTH, "-");
  const left = share === 1 ? "" : `${minutes((elapsed * (1 - share)) / share)} left`;
  const words = [`${Math.floor(share * 100)}%`, left, rate].filter(Boolean).join(", ");
  return `[${bar}] ${words}`;
}

const BAR_WIDTH = 20;

/** A time in seconds as minutes and seconds: "75:03". */
function minutes(time: number): string {
  const seconds = Math.ceil(time);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

function rateOf(plants: number, elapsed: number): string {
  return `${counted(plants, "plant")}, ${grouped(Math.round(plants / elapsed))}/s`;
}
