import type { OnWarning } from "../database/adapter.ts";
import { CommandError, QuietFailure, reasonOf } from "../errors.ts";
import type { LogOutput } from "../telemetry/logging.ts";

/** The input and output of commands, and the signal that stops them. */
export interface Io {
  /**
   * Writes a piece of a result. Resolves when it accepts more, and rejects with the system's error,
   * which has the code `EPIPE` if the reader of a pipe has ended.
   */
  readonly write: (chunk: string) => Promise<void>;

  /** Prints a message for people, after those before it, even if their reader is slow. */
  readonly stderr: (text: string) => void;

  /**
   * Resolves once they are out. Await it between many.
   *
   * @param limitMs After this time their reader is given up, in milliseconds. @default no limit
   */
  readonly printed: (limitMs?: number) => Promise<void>;

  /** The log of a server. It goes to stderr too, but loses lines rather than grow without bound. */
  readonly log: LogOutput;

  /** Whether stderr is a terminal. */
  readonly isTerminal: boolean;
  /** Whether that terminal shows colors: `TERM`, and https://no-color.org */
  readonly hasColors: boolean;
  /** Whether stdin and stderr are terminals: somebody can be asked. */
  readonly canAsk: boolean;

  /** The file of settings that is read if it exists and the command line names no other. */
  readonly settingsFile: string | undefined;

  /** Standard input. Call it once. */
  readonly stdin: () => ReadableStream<Uint8Array>;

  /** Aborted by the first SIGTERM, SIGINT or SIGQUIT, or by SIGHUP without a listener. */
  readonly stop: AbortSignal;
  /** Handles SIGHUP from then on. */
  readonly onHangup: (listener: () => void) => void;
}

/** Prints the warnings of a database, a line each. */
export function warningsTo({ stderr }: Pick<Io, "stderr">): OnWarning {
  return (message, { reason } = {}) =>
    stderr(reason === undefined ? `${message}\n` : `${message}: ${reason}\n`);
}

/**
 * Writes a command's result, or a piece of it, once the messages before it are out: both may go to
 * one terminal.
 *
 * @throws {QuietFailure} If the reader of a pipe has ended.
 * @throws {CommandError} If writing fails otherwise, for example on a full disk.
 */
export async function writeOutput(
  { write, printed }: Pick<Io, "write" | "printed">,
  text: string,
): Promise<void> {
  await printed();
  try {
    await write(text);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "EPIPE")
      throw new QuietFailure();
    throw new CommandError(`Cannot write the output: ${reasonOf(cause)}`, { cause });
  }
}
