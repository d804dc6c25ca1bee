import { PlantStoreError } from "../errors.ts";
import type { NewPlant } from "../plant/plant.ts";
import { parsePlant } from "../plant/plant_json.ts";
import { eventLoopTurn } from "../async/event_loop_turn.ts";

/** Lines that are committed together. */
export interface LineBatch {
  readonly lines: readonly CheckedLine[];
  /** How much of the input has been read, in bytes. */
  readonly bytes: number;
}

/** A line with its plant, or the reason why it has none. */
export interface CheckedLine {
  readonly number: number;
  readonly content: NewPlant | string;
}

/** A batch ends at this many lines, or at {@linkcode BATCH_BYTES}. */
const BATCH_LINES = 1_000;
/** A batch ends at this many bytes, because a name may be long. */
const BATCH_BYTES = 2 ** 22;

/**
 * Reads plants from lines of JSON, in batches: each line is checked as the API checks a body.
 *
 * @param maxLineBytes The longest line that is read, in bytes.
 * @param stop Ends the input early, with the lines that have arrived completely.
 */
export async function* batchesOf(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  maxLineBytes: number,
  stop: AbortSignal,
): AsyncGenerator<LineBatch> {
  const split = lineSplitter(maxLineBytes);
  let lines: CheckedLine[] = [];
  let [number, bytes, begin] = [0, 0, 0];
  for await (const chunk of chunksOf(reader, stop)) {
    for (const line of split(chunk)) {
      number++;
      bytes += line.length + 1;
      const content = line.bytes === undefined ? tooLong(maxLineBytes) : contentOf(line.bytes);
      if (content !== undefined) lines.push({ number, content });
      if (lines.length < BATCH_LINES && bytes - begin < BATCH_BYTES) continue;
      yield { lines, bytes };
      [lines, begin] = [[], bytes];
    }
  }
  yield { lines, bytes };
}

/** A line without its end; without its bytes where they are too many. */
interface Line {
  readonly length: number;
  readonly bytes: Uint8Array | undefined;
}

const NEWLINE = 0x0a;

/** Cuts chunks into lines. Of a line that is too long, no more than the limit is kept in memory. */
function lineSplitter(maxBytes: number): (chunk: Uint8Array) => Iterable<Line> {
  let parts: Uint8Array[] = [];
  let length = 0;

  function hold(part: Uint8Array): void {
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  }

  function take(): Line {
    const bytes = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    const line = { length, bytes: length > maxBytes ? undefined : bytes };
    [parts, length] = [[], 0];
    return line;
  }

  return function* split(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      hold(chunk.subarray(start, end));
      yield take();
      start = end + 1;
    }
    hold(chunk.subarray(start));
  };
}

/** The plant on a line, or what is wrong with it; nothing where the line is blank. */
function contentOf(bytes: Uint8Array): NewPlant | string | undefined {
  try {
    return isBlank(bytes) ? undefined : parsePlant(bytes, "the line");
  } catch (error) {
    if (!(error instanceof PlantStoreError)) throw error;
    return error.message;
  }
}

const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/** Also the first line of a file that has nothing but a byte order mark on it. */
function isBlank(bytes: Uint8Array): boolean {
  const start = BYTE_ORDER_MARK.every((byte, index) => bytes[index] === byte) ? BYTE_ORDER_MARK.length : 0;
  return bytes.subarray(start).every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}

function tooLong(maxBytes: number): string {
  return `the line must have at most ${maxBytes} bytes`;
}

/** Ends with the input, or with what has arrived when it is stopped. */
async function* chunksOf(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  stop: AbortSignal,
): AsyncGenerator<Uint8Array> {
  // Why it cannot be read is said where it is read.
  const cancel = () => void reader.cancel().catch(() => {});
  stop.addEventListener("abort", cancel);
  try {
    if (stop.aborted) return;
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      yield read.value;
      // A line can be longer than a batch, and a file is read without waiting.
      await eventLoopTurn();
    }
    // The last line may have no end. If it has, one blank line more changes nothing; if it was cut off, it is none.
    if (!stop.aborted) yield Uint8Array.of(NEWLINE);
  } finally {
    stop.removeEventListener("abort", cancel);
    cancel();
  }
}
