import { CommandError, reasonOf } from "../errors.ts";
import type { StreamIo } from "../server/io.ts";

/**
 * Writes a command's whole result.
 *
 * @throws {CommandError} If it cannot be written: the disk is full, or the reader of a pipe has ended.
 */
export async function writeOutput({ write }: Pick<StreamIo, "write">, text: string): Promise<void> {
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
