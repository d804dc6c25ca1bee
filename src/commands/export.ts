import type { NewPlant } from "../plant/plant.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import type { Io } from "./output.ts";
import { withAbort } from "../async/abort.ts";
import { eventLoopTurn } from "../async/event_loop_turn.ts";
import { CommandError, reasonOf } from "../errors.ts";

/** How plants are written. */
export type ExportFormat = keyof typeof FORMATS;

/** What to export. */
export interface ExportOptions {
  readonly format: ExportFormat;
}

/**
 * `plant-store export`: writes every plant that was stored before it began, ordered by id, from a database that may be
 * in use. Memory does not grow with the number of plants. Of a file that is marked as corrupt it writes what can be read.
 *
 * @returns 0, also when the reader of a pipe ended early; 1 when it was stopped.
 * @throws {CommandError} If the output cannot be written.
 * @throws {DatabaseError} If the database cannot be read; at the end, if the file is marked as corrupt.
 */
export async function exportPlants(database: DatabaseLocation, { format }: ExportOptions, io: Io): Promise<number> {
  const { openPlants } = await adapterOf(database);
  await using reader = await openPlants((message) => io.stderr(`${message}\n`));
  return await writeAll(chunksOf(reader.pages(), FORMATS[format]), io);
}

async function writeAll(chunks: AsyncIterable<string>, io: Io): Promise<number> {
  try {
    for await (const chunk of chunks) {
      await withAbort(io.write(chunk), io.stop);
      if (io.stop.aborted) return stopped(io);
      // A file takes every chunk at once.
      await eventLoopTurn();
    }
    return io.stop.aborted ? stopped(io) : 0;
  } catch (error) {
    if (codeOf(error) === "EPIPE") return 0;
    throw codeOf(error) === undefined ? error : new CommandError(`Cannot write the export: ${reasonOf(error)}`);
  }
}

async function* chunksOf(pages: AsyncIterable<readonly NewPlant[]>, { head, record }: Format): AsyncIterable<string> {
  if (head !== "") yield head;
  for await (const page of pages) yield page.map(record).join("");
}

function stopped({ stderr }: Io): number {
  stderr("Stopped: the export is incomplete\n");
  return 1;
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

interface Format {
  /** What stands before the first plant. */
  readonly head: string;
  readonly record: (plant: NewPlant) => string;
}

const FORMATS = {
  ndjson: { head: "", record: jsonLine },
  csv: { head: "id,name,tag\r\n", record: csvRecord },
} as const satisfies Record<string, Format>;

/** `JSON.stringify` takes no bigint, and an id is its own JSON. */
function jsonLine({ id, name, tag }: NewPlant): string {
  const tagMember = tag === undefined ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}\n`;
}

/** RFC 4180. As PostgreSQL reads it, a field without quotes can be absent; an empty text has them. */
function csvRecord({ id, name, tag }: NewPlant): string {
  return `${id},${csvField(name)},${tag === undefined ? "" : csvField(tag)}\r\n`;
}

function csvField(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
