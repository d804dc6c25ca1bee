/** Where a command writes, and what ends it early. */
export interface Io {
  /** Results. */
  readonly stdout: (text: string) => void;
  /** Words for people. */
  readonly stderr: (text: string) => void;
  /** Aborted by the first signal that asks the program to stop. */
  readonly stop: AbortSignal;
}

/** A command that failed for a reason its user can act on: one line says it. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
