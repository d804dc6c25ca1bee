import type { OnWarning } from "../database/adapter.ts";
import { CommandError, QuietFailure, reasonOf } from "../errors.ts";
import type { LogOutput } from "../telemetry/logging.ts";

/** The input and output of commands, and the signal that stops them. */
export interface Io {
  /**
   * Writes a piece of a result. Resolves when the output accepts more. Rejects with the system's
   * error, which has the code `EPIPE` if the reader of a pipe has exited.
   */
  readonly write: (chunk: string) => Promise<void>;

  /** Prints a message for people, after all earlier ones, even if the reader is slow. */
  readonly stderr: (text: string) => void;

  /**
   * Resolves once the messages are written. Await it between many messages.
   *
   * @param limitMs How long to wait for the reader, in milliseconds. @default no limit
   */
  readonly printed: (limitMs?: number) => Promise<void>;

  /**
   * The log of a server. It also goes to stderr, but drops lines instead of growing without bound.
   */
  readonly log: LogOutput;

  /** Whether stderr is a terminal. */
  readonly isTerminal: boolean;
  /** Whether the terminal shows colors, by `TERM` and https://no-color.org */
  readonly hasColors: boolean;

  /** The file of settings to read if it exists and the command line names none. */
  readonly settingsFile: string | undefined;

  /** Returns standard input. Call it once. */
  readonly stdin: () => ReadableStream<Uint8Array>;

  /**
   * Aborted by the first SIGTERM, SIGINT or SIGQUIT. If stderr is a terminal, also by a SIGHUP that
   * has no listener.
   */
  readonly stop: AbortSignal;
  /** Sets the listener for SIGHUP. */
  readonly onHangup: (listener: () => void) => void;
}

/** Prints the warnings of a database, a line each. */
export function warningsTo({ stderr }: Pick<Io, "stderr">): OnWarning {
  return (message, { reason } = {}) =>
    stderr(reason === undefined ? `${message}\n` : `${message}: ${reason}\n`);
}

/**
 * Writes a command's result, or a piece of it, once earlier messages are written: both may go to
 * the same terminal.
 *
 * @throws {QuietFailure} If the reader of a pipe has exited.
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
