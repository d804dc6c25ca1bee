import { CommandError, reasonOf } from "../errors.ts";

/** What commands read from and write to, and what ends them early. */
export interface Io {
  /**
   * Results, a piece at a time: resolves when more can be taken, and rejects with the system's error; its code is
   * `EPIPE` when the reader of a pipe has ended.
   */
  readonly write: (chunk: string) => Promise<void>;
  /** Messages for people. */
  readonly stderr: (text: string) => void;
  /** Whether messages for people go to a terminal. */
  readonly isTerminal: boolean;
  /** What comes in on standard input; to be called once. */
  readonly stdin: () => ReadableStream<Uint8Array>;
  /** Aborted by the first signal that asks the program to stop: SIGTERM, SIGINT, SIGQUIT, or SIGHUP without a listener. */
  readonly stop: AbortSignal;
  /** Takes SIGHUP from then on, which asks a server to read its certificate again. */
  readonly onHangup: (listener: () => void) => void;
}

/**
 * Writes a command's whole result.
 *
 * @throws {CommandError} If it cannot be written: the disk is full, or the reader of a pipe has ended.
 */
export async function writeOutput({ write }: Pick<Io, "write">, text: string): Promise<void> {
  try {
    await write(text);
  } catch (cause) {
    throw new CommandError(`Cannot write the output: ${reasonOf(cause)}`, { cause });
  }
}

/** A text as it may be printed: its control characters would reach the terminal, so each becomes `\u{…}`. */
export function escapeControls(text: string): string {
  return text.replaceAll(/\p{C}/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}
