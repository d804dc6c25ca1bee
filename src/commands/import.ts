import { createReadStream, type Stats, statSync } from "node:fs";
import { Readable } from "node:stream";
import { ERRORS, PlantStoreError, CommandError, isSystemError, reasonOf } from "../errors.ts";
import type { NewPlant } from "../plant/plant.ts";
import type { PlantStore, StoreOutcome } from "../database/plant_store.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { type Io } from "./output.ts";
import { type LineBatch, batchesOf } from "./ndjson.ts";
import { progressBar } from "./progress.ts";
import { reasonOfRefusal } from "../database/storage_refusal.ts";
import { eventLoopTurn } from "../async/event_loop_turn.ts";

/** How to import. */
export interface ImportOptions {
  /** The longest line that is read, in bytes; it is held in memory. @default {67_108_864} */
  readonly maxLineBytes?: number;
}

/**
 * `plant-store import`: adds plants from lines of JSON, the inverse of `export`. Each line is checked as the API checks
 * a body. A plant that is stored already is left as it is; a line that is refused is reported, and the import goes on.
 *
 * @param source A path, or "-" for standard input.
 * @returns 0; 1 when a line was refused, or when it was stopped.
 * @throws {CommandError} If the source cannot be read, or the database cannot take plants.
 * @throws {DatabaseError} If the database cannot be opened.
 */
export async function importPlants(
  database: DatabaseLocation,
  source: string,
  io: Io,
  { maxLineBytes = 2 ** 26 }: ImportOptions = {},
): Promise<number> {
  const input = openInput(source, io);
  const progress = progressBar({ ...io, total: input.size });
  const counts: Counts = { added: 0, present: 0, refused: 0, line: 0 };
  try {
    const onWait = () => progress.print("Waiting: another process is writing to the database\n");
    const { openForWriting } = await adapterOf(database);
    await using opened = await openForWriting({ create: true, bulk: { onWait, stop: io.stop } });
    for await (const batch of batchesOf(input.reader, maxLineBytes, io.stop)) {
      progress.print(await commit(batch, opened.plants, counts));
      progress.update(batch.bytes, counts.added + counts.present);
      // A file is read without waiting.
      await eventLoopTurn();
    }
  } catch (error) {
    throw toImportError(error, source, counts);
  } finally {
    progress.clear();
  }
  return printSummary(counts, io);
}

/** How long the database may take to add a batch, in milliseconds. */
const ADD_TIMEOUT_MS = 30_000;

/** How many lines had which outcome so far. */
interface Counts {
  added: number;
  present: number;
  refused: number;
  /** The last line that was committed or refused. */
  line: number;
}

function printSummary({ added, present, refused, line }: Counts, { stderr, stop }: Io): number {
  const summary = `${added} added, ${present} already there, ${refused} refused\n`;
  stderr(stop.aborted ? `Stopped after line ${line}, import it again to go on: ${summary}` : summary);
  return stop.aborted || refused > 0 ? 1 : 0;
}

/** An error of the database or of the system, in one line; what was committed before it stays. */
function toImportError(error: unknown, source: string, counts: Counts): unknown {
  const reason = reasonOfRefusal(error);
  if (reason !== undefined) {
    return new CommandError(`Cannot add plants after line ${counts.line}: ${reason}`, { cause: error });
  }
  // Closing the database failed, too; the first error says more.
  if (error instanceof SuppressedError) return toImportError(error.suppressed, source, counts);
  return isSystemError(error) ? cannotRead(source, error) : error;
}

function cannotRead(source: string, cause: unknown): CommandError {
  return new CommandError(`Cannot read "${source}": ${reasonOf(cause)}`, { cause });
}

/** Opened before the database is, which would be made where there is none. */
function openInput(source: string, { stdin }: Io) {
  try {
    if (source === "-") return { reader: readerOf(stdin()), size: undefined };
    const stats = statSync(source);
    // A pipe has a name, too, but no size.
    return { reader: readerOf(streamOf(source, stats)), size: stats.isFile() ? stats.size : undefined };
  } catch (cause) {
    throw cannotRead(source, cause);
  }
}

/** Bun's own stream cannot read a device such as /dev/null. */
function streamOf(source: string, stats: Stats): ReadableStream<Uint8Array> {
  if (!stats.isCharacterDevice()) return Bun.file(source).stream();
  return Readable.toWeb(createReadStream(source)) as unknown as ReadableStream<Uint8Array>;
}

function readerOf(stream: ReadableStream<Uint8Array>): ReadableStreamDefaultReader<Uint8Array> {
  return stream.getReader();
}

/** Adds a batch, counts the outcomes, and resolves to a report on the lines that were refused. */
async function commit({ lines }: LineBatch, store: PlantStore, counts: Counts): Promise<string> {
  const outcomes = await addAll(
    lines.map(({ content }) => content).filter((content) => typeof content !== "string"),
    store,
  );
  let report = "";
  let next = 0;
  for (const { number, content } of lines) {
    const isPlant = typeof content !== "string";
    const outcome = isPlant ? outcomes[next++] : "refused";
    if (outcome === "added" || outcome === "present") counts[outcome]++;
    else {
      counts.refused++;
      report += `line ${number}: ${isPlant ? ERRORS.id_taken.message : content}\n`;
    }
    counts.line = number;
  }
  return report;
}

/** Adds plants, and those again that another transaction holds, as long as the time allows. */
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
