/** Where a command writes, and what ends it early. */
export interface Io {
  /** Messages for people. */
  readonly stderr: (text: string) => void;
  /** Aborted by the first signal that asks the program to stop: SIGTERM, SIGINT, SIGQUIT, or SIGHUP without a listener. */
  readonly stop: AbortSignal;
  /** Takes SIGHUP from then on, which asks a daemon to read its files again. */
  readonly onHangup: (listener: () => void) => void;
}

/** A command that failed for a reason its user can act on: one line says it. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** What commands need that move more than fits into memory, over pipes and files. */
export interface StreamIo extends Io {
  /**
   * Results, a piece at a time: resolves when more can be taken, and rejects with the system's error; its code is
   * `EPIPE` when the reader of a pipe has ended.
   */
  readonly write: (chunk: string) => Promise<void>;
  /** What comes in on standard input; to be called once. */
  readonly stdin: () => ReadableStream<Uint8Array>;
  /** Whether messages for people go to a terminal. */
  readonly isTerminal: boolean;
}

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

/** Whether the operating system refused something, such as opening a file. */
export function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

/** What the system says of a failure, without the call and the path: "no space left on device". */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return /^E[A-Z0-9]+: (.+?)(?:, \w+(?: '.*)?)?$/s.exec(message)?.[1] ?? message;
}

/** Waits for a promise, but not past `stop`. Resolves to whether the promise was the first. */
export async function isDone(promise: Promise<unknown>, stop: AbortSignal): Promise<boolean> {
  const stopped = Promise.withResolvers<boolean>();
  const end = () => stopped.resolve(false);
  if (stop.aborted) end();
  stop.addEventListener("abort", end);
  try {
    return await Promise.race([stopped.promise, promise.then(() => true)]);
  } finally {
    stop.removeEventListener("abort", end);
  }
}

/** A text as it may be printed: its control characters would reach the terminal, so each becomes `\u{…}`. */
export function escapeControls(text: string): string {
  return text.replaceAll(/\p{C}/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}
