import { fstatSync, write } from "node:fs";
import { promisify } from "node:util";

import { pause, withDeadline } from "../async/timers.ts";
import type { LogOutput } from "../telemetry/logging.ts";

/** The maximum size of waiting log lines, in bytes. Further lines are dropped. */
const MAX_WAITING_BYTES = 2 ** 20;

/**
 * The maximum size of one write. Writes to a pipe are atomic only up to `PIPE_BUF`: lines of
 * another process could split a larger one.
 */
const PIECE_BYTES = { pipe: 4_096, other: 65_536 };

/**
 * How long to wait if the pipe is full and another process made it non-blocking, in milliseconds.
 */
const FULL_PIPE_PAUSE_MS = 10;

/**
 * An output stream, stdout or stderr. It writes in a thread of the runtime's pool: a slow reader or
 * a hanging disk blocks only that thread.
 *
 * Unlike `process.stdout` and `process.stderr`, it does not change the flags of the open file,
 * which other processes share (https://github.com/oven-sh/bun/issues/35956).
 */
export class Output implements LogOutput {
  readonly #fd: number;
  readonly #pieceBytes: number;
  /** The pieces in order. The first ones are being written. */
  readonly #waiting: Piece[] = [];
  #waitingBytes = 0;
  #isWriting = false;
  /** The number of lost lines that have not been reported yet. */
  #lost = 0;
  #lostInAll = 0;
  /** Whether a wait for the reader timed out. */
  #isGivenUp = false;

  /** @param fd 1 for stdout, 2 for stderr. */
  constructor(fd: number) {
    this.#fd = fd;
    this.#pieceBytes = PIECE_BYTES[isPipe(fd) ? "pipe" : "other"];
  }

  /**
   * Writes a text after those before it.
   *
   * @throws {Error} The system's error, with its code, if the text, or its end, is lost.
   */
  write(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#push(text, (error) => (error === undefined ? resolve() : reject(error)));
    });
  }

  /** Writes a line of the log; see {@linkcode LogOutput}. */
  log(line: string, lostLine: (lost: number) => string): void {
    const lost = this.#lost;
    // After a loss, drop lines until half of the space is free, to leave one gap instead of many.
    if (this.#waitingBytes > MAX_WAITING_BYTES / (lost > 0 ? 2 : 1)) {
      this.#lose();
      return;
    }

    if (lost > 0) {
      this.#lost = 0;
      this.#push(lostLine(lost), (error) => (this.#lost += error === undefined ? 0 : lost));
    }
    // The same function for all: a promise for each line would cost more than the line.
    this.#push(line, this.#countLost);
  }

  readonly #countLost = (error: unknown): void => {
    if (error !== undefined) this.#lose();
  };

  #lose(): void {
    this.#lost++;
    this.#lostInAll++;
  }

  /** Returns how many lines of the log were lost since the start. */
  lostLines(): number {
    return this.#lostInAll;
  }

  /** Writes a message after those before it. */
  print(text: string): void {
    this.write(text).catch(() => {});
  }

  /**
   * Resolves once everything is written. Gives up on the reader for good after `limitMs`
   * milliseconds.
   */
  async drain(limitMs = Number.POSITIVE_INFINITY): Promise<void> {
    if (this.#isGivenUp) return;
    const end = this.write("").then(
      () => false,
      () => false,
    );
    this.#isGivenUp = await withDeadline(end, limitMs, () => true);
  }

  #push(text: string, settle: Piece["settle"]): void {
    const size = Buffer.byteLength(text);
    this.#waiting.push({ text, size, settle });
    this.#waitingBytes += size;
    if (!this.#isWriting) void this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;

    while (this.#waiting.length > 0) {
      const pieces = this.#waiting.splice(0, this.#countOfNext());
      const bytes = Buffer.from(pieces.map(({ text }) => text).join(""));
      const error = await this.#writeBytes(bytes).catch((failure: unknown) => failure);

      this.#waitingBytes -= bytes.length;
      for (const { settle } of pieces) settle(error);
    }

    this.#isWriting = false;
  }

  /** Returns how many of the waiting pieces to write together. */
  #countOfNext(): number {
    let bytes = 0;
    const end = this.#waiting.findIndex((piece) => (bytes += piece.size) > this.#pieceBytes);
    return end === -1 ? this.#waiting.length : Math.max(1, end);
  }

  async #writeBytes(bytes: Buffer): Promise<void> {
    for (let rest = bytes; rest.length > 0;) {
      try {
        const { bytesWritten } = await writeAsync(this.#fd, rest);
        rest = rest.subarray(bytesWritten);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
        await pause(FULL_PIPE_PAUSE_MS);
      }
    }
  }
}

/** A text that waits to be written. */
interface Piece {
  readonly text: string;
  /** The size in bytes. */
  readonly size: number;
  /** Called once the text is written, or with the error if the text, or its end, is lost. */
  readonly settle: (error: unknown) => void;
}

function isPipe(fd: number): boolean {
  try {
    return fstatSync(fd).isFIFO();
  } catch {
    // The stream was closed before the program began.
    return false;
  }
}

const writeAsync = promisify(write);
