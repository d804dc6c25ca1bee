import type { Progress } from "../database/adapter.ts";
import { CommandError, reasonOf } from "../errors.ts";

/** The input and output of commands, and the signal that stops them. */
export interface Io {
  /**
   * Writes a piece of a result. Resolves when it accepts more, and rejects with the system's error,
   * which has the code `EPIPE` if the reader of a pipe has ended.
   */
  readonly write: (chunk: string) => Promise<void>;
  /** Prints a message for people. */
  readonly stderr: (text: string) => void;
  /** Whether stderr is a terminal. */
  readonly isTerminal: boolean;
  /** Whether that terminal understands escape sequences (ECMA-48). */
  readonly isAnsi: boolean;
  /** https://no-color.org */
  readonly hasColors: boolean;
  /** Standard input. Call it once. */
  readonly stdin: () => ReadableStream<Uint8Array>;
  /** Aborted by the first SIGTERM, SIGINT or SIGQUIT, or by SIGHUP without a listener. */
  readonly stop: AbortSignal;
  /** Handles SIGHUP from then on, which asks a server to reload its certificate. */
  readonly onHangup: (listener: () => void) => void;
}

/**
 * A command failed, and there is nothing to print: it is logged, or the reader of the output has
 * ended, as `head` does.
 */
export class QuietFailure extends Error {
  override readonly name = "QuietFailure";
}

/**
 * Writes a command's result, or a piece of it.
 *
 * @throws {QuietFailure} If the reader of a pipe has ended.
 * @throws {CommandError} If writing fails otherwise, for example on a full disk.
 */
export async function writeOutput({ write }: Pick<Io, "write">, text: string): Promise<void> {
  try {
    await write(text);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "EPIPE")
      throw new QuietFailure();
    throw new CommandError(`Cannot write the output: ${reasonOf(cause)}`, { cause });
  }
}

/** What was typed, in quotation marks; a very long text is cut. */
export function quoted(text: string): string {
  return text.length > 80 ? `"${text.slice(0, 80)}…"` : `"${text}"`;
}

/** A number for people: "400,000". */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

/** A number of things: "1 plant", "400,000 plants". */
export function counted(count: number, thing: string): string {
  return `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
}

/** The size of a file for people: "12 kB", "1,200 MB". */
export function sizeOf(bytes: number): string {
  return bytes < 1e6
    ? `${grouped(Math.ceil(bytes / 1e3))} kB`
    : `${grouped(Math.round(bytes / 1e6))} MB`;
}

const INTERVAL_MS = 100;
/** Goes to the beginning of the line, and erases it (ECMA-48: CR, EL). */
const ERASE = "\r\x1b[K";

/**
 * A line at the bottom of a terminal that shows how much is done, how many plants a second, and how
 * much time is left. There is none unless the terminal understands escape sequences.
 */
export function progressBar(
  { stderr, isAnsi }: Pick<Io, "stderr" | "isAnsi">,
  now: () => number = () => performance.now(),
) {
  const begin = now();
  let due = begin + INTERVAL_MS;
  let line = "";

  function draw(text: string): void {
    if (text !== line) stderr(`${ERASE}${text}`);
    line = text;
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
  const rate =
    plants === undefined
      ? ""
      : `${counted(plants, "plant")}, ${grouped(Math.round(plants / elapsed))}/s`;
  if (total === undefined || done === 0) return rate;
  const share = Math.min(1, done / total);
  const bar = "#".repeat(Math.floor(share * BAR_WIDTH)).padEnd(BAR_WIDTH, "-");
  const left = clock((elapsed * (1 - share)) / share);
  return `[${bar}] ${Math.floor(share * 100)} % ${rate && `${rate}, `}${left} left`;
}

const BAR_WIDTH = 20;

/** Minutes and seconds; hours before them where there are any. */
function clock(seconds: number): string {
  const whole = Math.ceil(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) =>
    String(part).padStart(2, "0"),
  );
  return [...(whole >= 3600 ? [Math.floor(whole / 3600)] : []), ...parts].join(":");
}
