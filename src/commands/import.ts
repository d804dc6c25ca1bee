import { createReadStream, readFileSync, readlinkSync, type Stats, statSync } from "node:fs";
import { Readable } from "node:stream";

import { eventLoopTurn, pause, withAbort, withDeadline } from "../async/timers.ts";
import { reasonOfRefusal } from "../database/refusals.ts";
import { CommandError, ERRORS, PlantStoreError, QuietFailure, reasonOf } from "../errors.ts";
import type { PlantStore, StoreOutcome } from "../group_commit/plant_store.ts";
import type { NewPlant } from "../plant/plant.ts";
import { parsePlant } from "../plant/plant_json.ts";
import { type Call, DATABASE_FLAG, type Subcommand } from "./command.ts";
import { grouped } from "./formatting.ts";
import { progressBar } from "./progress_bar.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import type { Io } from "./terminal.ts";

/**
 * `plant-store import`: a stored plant stays as it is. A refused line is reported, and the import
 * goes on.
 */
export const importPlants: Subcommand = {
  usage: "import <file>",
  description: 'Add plants from lines of JSON, as export prints them; "-" reads standard input',
  flags: [JSON_FLAG, DATABASE_FLAG],
  example: "import plants.ndjson",
  run,
};

/** Adds batch after batch, and prints how many plants were added, present and refused. */
async function run({ argument: source, flags, config, adapter, io }: Call): Promise<void> {
  const { maxBodyBytes } = await config();
  const { name: database, openForWriting } = await adapter();

  // A line must have room for any plant that the API accepts: its id may be written longer.
  const maxLineBytes = Math.max(2 ** 26, maxBodyBytes + 64);
  const input = openInput(source, io);
  const progress = progressBar(io);
  const counts = { added: 0, present: 0, refused: 0 };
  // The last one that was committed or refused.
  let line = 0;

  try {
    const onCreate = (created: string) => progress.print(`Created database "${created}"\n`);
    await using opened = await openForWriting({ create: true, onCreate });

    for await (const { lines, bytes } of batchesOf(input, maxLineBytes, io.stop)) {
      const plants = lines.flatMap(({ plant }) => plant ?? []);
      const adding = addAll(plants, opened.plants);
      // After a stop, a batch that is being committed gets a moment more, so that it is counted.
      const added =
        (await withAbort(adding, io.stop)) ??
        (await withDeadline(adding, STOP_MS, () => undefined));
      if (added === undefined) break;

      const reports = countOutcomes(counts, lines, added);
      line = lines.at(-1)?.number ?? line;

      progress.print(reports.join(""));
      await withAbort(io.printed(), io.stop);
      progress.update({ done: bytes, total: input.size, plants: counts.added + counts.present });
      // Reading a file does not wait: signals are handled here.
      await eventLoopTurn();
    }
  } catch (error) {
    const reason = reasonOfRefusal(error);
    if (reason === undefined) throw error;
    // Plants that were committed before stay.
    throw new CommandError(`Cannot add plants after line ${line}: ${reason}`, { cause: error });
  } finally {
    progress.clear();
  }

  const { added, present, refused } = counts;
  const summary = `${grouped(added)} added, ${grouped(present)} already there, ${grouped(refused)} refused`;

  if (io.stop.aborted)
    throw new CommandError(
      `Stopped after line ${line}, run the import again to continue: ${summary}`,
    );

  const result = { database, file: source, ...counts };
  await printResult({ io, flags }, result, () => io.stderr(`${summary}\n`));
  if (refused > 0) throw new QuietFailure();
}

/**
 * Adds the outcomes of a batch to the counts.
 *
 * @param added The outcome of each line that has a plant, in order.
 * @returns A message for each line that was refused.
 */
function countOutcomes(
  counts: Record<"added" | "present" | "refused", number>,
  lines: readonly Line[],
  added: readonly StoreOutcome[],
): string[] {
  const outcomes = added.values();
  const reports: string[] = [];

  for (const { number, plant, fault = ERRORS.id_taken.message } of lines) {
    const outcome = plant && outcomes.next().value;
    if (outcome === "added" || outcome === "present") counts[outcome]++;
    else reports.push(`line ${number}: ${fault}\n`);
  }

  counts.refused += reports.length;
  return reports;
}

/** How long a batch may take, in milliseconds: it may wait for the lock of another process. */
const ADD_TIMEOUT_MS = 30_000;

/** How long a batch may take after a stop, in milliseconds. */
const STOP_MS = 1_000;

/** The input of an import: bytes that arrive in pieces, and their number if it is known. */
type Input = ReturnType<typeof openInput>;

/** Opens the input before the database, which would be created if there is none. */
function openInput(source: string, { stdin }: Io) {
  const refuse = (cause: unknown): never => {
    throw new CommandError(`Cannot read "${source}": ${reasonOf(cause)}`, { cause });
  };

  try {
    if (source === "-" && isStdinClosed()) throw new Error("standard input is closed");
    const stats = source === "-" ? undefined : statSync(source);
    const reader = (stats === undefined ? stdin() : streamOf(source, stats)).getReader();
    return {
      read: () => reader.read().catch(refuse),
      cancel: () => reader.cancel(),
      // A named pipe has no size.
      size: stats?.isFile() ? stats.size : undefined,
    };
  } catch (cause) {
    return refuse(cause);
  }
}

/**
 * Whether the program was started without standard input (`<&-`). Bun opens /dev/null in its place,
 * for reading and writing; `</dev/null` opens it for reading only. Only Linux tells.
 */
function isStdinClosed(): boolean {
  try {
    const isForWriting = /^flags:\s+\d*2$/m.test(readFileSync("/proc/self/fdinfo/0", "latin1"));
    return isForWriting && readlinkSync("/proc/self/fd/0") === "/dev/null";
  } catch {
    return false;
  }
}

function streamOf(source: string, stats: Stats): ReadableStream<Uint8Array> {
  if (!stats.isCharacterDevice()) return Bun.file(source).stream();
  // Bun's stream cannot read a device such as /dev/null.
  return Readable.toWeb(createReadStream(source)) as unknown as ReadableStream<Uint8Array>;
}

/** Adds plants, and until the deadline those again that another transaction has locked. */
async function addAll(
  plants: readonly NewPlant[],
  store: PlantStore,
): Promise<readonly StoreOutcome[]> {
  const deadline = performance.now() + ADD_TIMEOUT_MS;
  let outcomes = await store.add(plants, { timeoutMs: ADD_TIMEOUT_MS });

  while (outcomes.includes("unavailable")) {
    const timeoutMs = deadline - performance.now();
    if (timeoutMs <= 0)
      throw new PlantStoreError("storage_unavailable", undefined, { cause: new Error(LOCKED) });
    await pause(LOCKED_PAUSE_MS);

    const locked = plants.filter((_, index) => outcomes[index] === "unavailable");
    const later = (await store.add(locked, { timeoutMs })).values();
    outcomes = outcomes.map((outcome) =>
      outcome === "unavailable" ? (later.next().value ?? outcome) : outcome,
    );
  }

  return outcomes;
}

/** How long to wait before adding locked plants again, in milliseconds. */
const LOCKED_PAUSE_MS = 100;
const LOCKED = "another transaction held a lock for too long";

/** A line that is not blank: a plant, or why it is refused. */
interface Line {
  readonly number: number;
  readonly plant?: NewPlant;
  readonly fault?: string;
}

/** A batch ends at this many lines, or at {@linkcode BATCH_BYTES}. */
const BATCH_LINES = 1_000;
/** A batch ends at this many bytes, because a name may be long. */
const BATCH_BYTES = 2 ** 22;

/**
 * The lines that are committed together, each time with how much of the input was read, in bytes.
 * After a stop, ends with those that have arrived completely.
 */
async function* batchesOf(input: Input, maxBytes: number, stop: AbortSignal) {
  let lines: Line[] = [];
  let number = 0;
  let bytes = 0;
  /** How many bytes the batches before have. */
  let before = 0;

  for await (const pieces of splitLines(input, maxBytes, stop)) {
    for (const { length, content } of pieces) {
      number++;
      bytes += length + 1;
      if (number === 1) requireLinesOfJson(content);
      const line = checkLine(number, content, maxBytes);
      if (line === undefined) continue;

      lines.push(line);
      if (lines.length < BATCH_LINES && bytes - before < BATCH_BYTES) continue;

      yield { lines, bytes };
      lines = [];
      before = bytes;
    }
  }

  yield { lines, bytes };
}

/** @throws {CommandError} If the first line is that of another format: every line would be refused. */
function requireLinesOfJson(line: Uint8Array = new Uint8Array()): void {
  const start = Buffer.from(line.subarray(0, 1_000)).toString("latin1");
  const [, what] = FORMATS.find(([pattern]) => pattern.test(start)) ?? [];
  if (what !== undefined)
    throw new CommandError(
      `Cannot add plants: expected a JSON object a line in UTF-8, got ${what}`,
    );
}

/** How a first line of another format begins, byte by byte. */
const FORMATS: readonly (readonly [RegExp, what: string])[] = [
  [/^SQLite format 3\0/, "a database of SQLite: put a backup in place with plant-store restore"],
  [/^\p{Cc}\x8b/u, "gzip: decompress it first (`gunzip -c`)"],
  [/^(?:\xff\xfe|\xfe\xff|.?\0)/s, "UTF-16: convert it first (`iconv -f UTF-16 -t UTF-8`)"],
  [/^(?:\xef\xbb\xbf)?[^{}[\],;\t]+(?:[,;\t][^{}[\]]*)+$/, "CSV: convert it first"],
];

/** Checks a line as the API checks a body; returns `undefined` if it is blank. */
function checkLine(
  number: number,
  content: Uint8Array | undefined,
  maxBytes: number,
): Line | undefined {
  if (content === undefined) {
    return { number, fault: `the line must have at most ${maxBytes} bytes` };
  }

  try {
    return { number, plant: parsePlant(content, "the line") };
  } catch (error) {
    if (!(error instanceof PlantStoreError)) throw error;
    // The decoder drops a byte order mark, which may be all that the first line of a file has.
    const isBlank = /^[ \t\r]*$/.test(new TextDecoder().decode(content));
    return isBlank ? undefined : { number, fault: error.message };
  }
}

const NEWLINE = 0x0a;

/**
 * The lines that end in each chunk, without their ends. Keeps no more of a line in memory than the
 * limit: a line that is longer has no content.
 */
async function* splitLines(input: Input, maxBytes: number, stop: AbortSignal) {
  /** Of the line that the chunks so far have not ended. */
  let parts: Uint8Array[] = [];
  let length = 0;

  try {
    for (;;) {
      const read = await withAbort(input.read(), stop);
      // The stop cuts the last line off: it does not count.
      if (read === undefined) return;

      // Ends the last line, which may have no newline. After one, another blank line changes
      // nothing.
      const chunk = read.value ?? Uint8Array.of(NEWLINE);
      const lines: { length: number; content: Uint8Array | undefined }[] = [];
      let start = 0;

      for (;;) {
        const end = chunk.indexOf(NEWLINE, start);
        const part = chunk.subarray(start, end === -1 ? chunk.length : end);
        length += part.length;
        if (length > maxBytes) parts = [];
        else parts.push(part);
        if (end === -1) break;

        const content = parts.length === 1 ? parts[0] : Buffer.concat(parts);
        lines.push({ length, content: length > maxBytes ? undefined : content });
        parts = [];
        length = 0;
        start = end + 1;
      }

      yield lines;
      if (read.done) return;
      // A line can be longer than a batch, and reading a file does not wait.
      await eventLoopTurn();
    }
  } finally {
    // A read error is reported by the read.
    void input.cancel().catch(() => {});
  }
}
