/** Where a command writes, and what ends it early. */
export interface Io {
  /** Messages for people. */
  readonly stderr: (text: string) => void;
  /** Aborted by the first signal that asks the program to stop: SIGTERM, SIGINT, SIGQUIT, or SIGHUP without a listener. */
  readonly stop: AbortSignal;
  /** Takes SIGHUP from then on, which asks a daemon to read its files again. */
  readonly onHangup: (listener: () => void) => void;
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
