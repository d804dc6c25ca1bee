import { createReadStream, statSync } from "node:fs";
import { Readable } from "node:stream";
import { eventLoopTurn } from "../async/timers.ts";
import { adapterOf, reasonOfRefusal } from "../database/open_database.ts";
import type { PlantStore, StoreOutcome } from "../database/database.ts";
import { CommandError, ERRORS, isSystemError, PlantStoreError, reasonOf } from "../errors.ts";
import type { NewPlant } from "../plant/plant.ts";
import { parsePlant } from "../plant/plant_json.ts";
import type { Call, Subcommand } from "./command.ts";
import { grouped, type Io, progressBar } from "./output.ts";

/** `plant-store import`: a stored plant stays as it is. A refused line is reported, and the import goes on. */
export const importPlants: Subcommand = {
  usage: "import <file>",
  description: 'Add plants from lines of JSON, as export prints them; "-" reads standard input',
  example: "import plants.ndjson",
  run,
};

async function run({ argument: source, config, io }: Call): Promise<number> {
  const { database, maxBodyBytes } = await config();
  // A line must have room for any plant that the API accepts: its id may be written longer.
  const maxLineBytes = Math.max(2 ** 26, maxBodyBytes + 64);
  const input = openInput(source, io);
  const progress = progressBar(io);
  const counts: Counts = { added: 0, present: 0, refused: 0, line: 0 };
  try {
    const onWait = () => progress.print("Waiting: another process is writing to the database\n");
    const { openForWriting } = await adapterOf(database);
    await using opened = await openForWriting({ create: true, bulk: { onWait, stop: io.stop } });
    for await (const batch of batchesOf(input.reader, maxLineBytes, io.stop)) {
      progress.print(await commit(batch, opened.plants, counts));
      progress.update({ done: batch.bytes, total: input.size, plants: counts.added + counts.present });
      // Reading a file does not wait: signals are handled here.
      await eventLoopTurn();
    }
  } catch (error) {
    throw toImportError(error, source, counts);
  } finally {
    progress.clear();
  }
  const { added, present, refused, line } = counts;
  const summary = `${grouped(added)} added, ${grouped(present)} already there, ${grouped(refused)} refused\n`;
  io.stderr(io.stop.aborted ? `Stopped after line ${line}, import it again to go on: ${summary}` : summary);
  return io.stop.aborted || refused > 0 ? 1 : 0;
}

const ADD_TIMEOUT_MS = 30_000;

interface Counts {
  added: number;
  present: number;
  refused: number;
  /** The last line that was committed or refused. */
  line: number;
}

/** An error of the database or of the system, in one line. Plants that were committed before stay. */
function toImportError(error: unknown, source: string, counts: Counts): unknown {
  const reason = reasonOfRefusal(error);
  if (reason !== undefined) {
    return new CommandError(`Cannot add plants after line ${counts.line}: ${reason}`, { cause: error });
  }
  // Closing the database failed as well: the first error says more.
  if (error instanceof SuppressedError) return toImportError(error.suppressed, source, counts);
  return isSystemError(error) ? cannotRead(source, error) : error;
}

function cannotRead(source: string, cause: unknown): CommandError {
  return new CommandError(`Cannot read "${source}": ${reasonOf(cause)}`, { cause });
}

/** Opens the input before the database, which would be created if there is none. */
function openInput(source: string, { stdin }: Io) {
  try {
    if (source === "-") return { reader: stdin().getReader(), size: undefined };
    const stats = statSync(source);
    // Bun's stream cannot read a device such as /dev/null.
    const stream = stats.isCharacterDevice()
      ? (Readable.toWeb(createReadStream(source)) as unknown as ReadableStream<Uint8Array>)
      : Bun.file(source).stream();
    // A named pipe has no size.
    return { reader: stream.getReader(), size: stats.isFile() ? stats.size : undefined };
  } catch (cause) {
    throw cannotRead(source, cause);
  }
}

/** Adds a batch, counts the outcomes, and resolves to a report of the refused lines. */
async function commit({ plants, faults, lastLine }: Batch, store: PlantStore, counts: Counts): Promise<string> {
  const outcomes = await addAll(
    plants.map(({ plant }) => plant),
    store,
  );
  const conflicts = plants.flatMap(({ line }, index) =>
    outcomes[index] === "conflict" ? [{ line, message: ERRORS.id_taken.message }] : [],
  );
  const refused = [...faults, ...conflicts].toSorted((one, other) => one.line - other.line);
  for (const outcome of outcomes) if (outcome === "added" || outcome === "present") counts[outcome]++;
  counts.refused += refused.length;
  counts.line = lastLine;
  return refused.map(({ line, message }) => `line ${line}: ${message}\n`).join("");
}

/** Adds plants, and until the deadline those again that another transaction has locked. */
async function addAll(plants: readonly NewPlant[], store: PlantStore): Promise<readonly StoreOutcome[]> {
  const deadline = performance.now() + ADD_TIMEOUT_MS;
  let outcomes = await store.add(plants, { timeoutMs: ADD_TIMEOUT_MS });
  while (outcomes.includes("unavailable")) {
    const timeoutMs = deadline - performance.now();
    if (timeoutMs <= 0) throw new PlantStoreError("storage_unavailable", undefined, { cause: new Error(LOCKED) });
    const locked = plants.filter((_, index) => outcomes[index] === "unavailable");
    const later = (await store.add(locked, { timeoutMs })).values();
    outcomes = outcomes.map((outcome) => (outcome === "unavailable" ? (later.next().value ?? outcome) : outcome));
  }
  return outcomes;
}

const LOCKED = "another transaction held a lock for too long";

/** Lines that are committed together. */
interface Batch {
  readonly plants: readonly { readonly line: number; readonly plant: NewPlant }[];
  /** The lines that are not a plant, and why. */
  readonly faults: readonly { readonly line: number; readonly message: string }[];
  readonly lastLine: number;
  /** How much of the input was read, in bytes. */
  readonly bytes: number;
}

/** A batch ends at this many lines, or at {@linkcode BATCH_BYTES}. */
const BATCH_LINES = 1_000;
/** A batch ends at this many bytes, because a name may be long. */
const BATCH_BYTES = 2 ** 22;

/** Checks each line as the API checks a body. After a stop, ends with the lines that have arrived completely. */
async function* batchesOf(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  maxLineBytes: number,
  stop: AbortSignal,
): AsyncGenerator<Batch> {
  let [plants, faults]: [{ line: number; plant: NewPlant }[], { line: number; message: string }[]] = [[], []];
  let [line, lastLine, bytes, begin] = [0, 0, 0, 0];
  for await (const lines of linesOf(reader, maxLineBytes, stop)) {
    for (const { length, content } of lines) {
      line++;
      bytes += length + 1;
      try {
        if (content === undefined) faults.push({ line, message: `the line must have at most ${maxLineBytes} bytes` });
        else plants.push({ line, plant: parsePlant(content, "the line") });
      } catch (error) {
        if (!(error instanceof PlantStoreError)) throw error;
        if (isBlank(content)) continue;
        faults.push({ line, message: error.message });
      }
      lastLine = line;
      if (plants.length + faults.length < BATCH_LINES && bytes - begin < BATCH_BYTES) continue;
      yield { plants, faults, lastLine, bytes };
      [plants, faults, begin] = [[], [], bytes];
    }
  }
  yield { plants, faults, lastLine, bytes };
}

/** The decoder drops a byte order mark, which may be all that the first line of a file has. */
function isBlank(content: Uint8Array | undefined): boolean {
  return /^[ \t\r]*$/.test(new TextDecoder().decode(content));
}

/** A line without its end; without its content if that is too long. */
interface Line {
  readonly length: number;
  readonly content: Uint8Array | undefined;
}

const NEWLINE = 0x0a;

/** The lines that end in each chunk. Keeps no more of a line in memory than the limit. */
async function* linesOf(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  maxBytes: number,
  stop: AbortSignal,
): AsyncGenerator<readonly Line[]> {
  let [parts, length]: [Uint8Array[], number] = [[], 0];

  function hold(part: Uint8Array): void {
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  }

  function take(): Line {
    const bytes = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    const line = { length, content: length > maxBytes ? undefined : bytes };
    [parts, length] = [[], 0];
    return line;
  }

  // A read error is reported by the read.
  const cancel = () => void reader.cancel().catch(() => {});
  stop.addEventListener("abort", cancel);
  try {
    while (!stop.aborted) {
      const { done, value } = await reader.read();
      // A stop may have cut the last line off: then it does not count.
      if (done && stop.aborted) return;
      // Ends the last line, which may have no newline. After one, another blank line changes nothing.
      const chunk = value ?? Uint8Array.of(NEWLINE);
      const lines: Line[] = [];
      let start = 0;
      for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
        hold(chunk.subarray(start, end));
        lines.push(take());
        start = end + 1;
      }
      hold(chunk.subarray(start));
      yield lines;
      if (done) return;
      // A line can be longer than a batch, and reading a file does not wait.
      await eventLoopTurn();
    }
  } finally {
    stop.removeEventListener("abort", cancel);
    cancel();
  }
}
