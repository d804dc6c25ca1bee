import { openReader, type PlantRow } from "../adapters/sqlite/reader.ts";
import { CommandError, isDone, reasonOf, type StreamIo } from "./io.ts";

/** How plants are written. */
export type ExportFormat = keyof typeof FORMATS;

/** What to export. */
export interface ExportOptions {
  readonly format: ExportFormat;
}

/**
 * `plant-store export`: writes every plant that was stored before it began, ordered by id, from a database that may be
 * in use. Memory does not grow with the number of plants.
 *
 * @returns 0, also when nobody reads on; 1 when it was stopped.
 * @throws {CommandError} If the output cannot be written.
 * @throws {DatabaseFileError} If the database cannot be read.
 */
export async function exportPlants(databasePath: string, { format }: ExportOptions, io: StreamIo): Promise<number> {
  using reader = openReader(databasePath);
  try {
    for (const chunk of chunksOf(reader.pages(), FORMATS[format])) {
      if (!(await isDone(io.write(chunk), io.stop))) return stopped(io);
    }
    return 0;
  } catch (error) {
    if (codeOf(error) === "EPIPE") return 0;
    throw codeOf(error) === undefined ? error : new CommandError(`Cannot write the export: ${reasonOf(error)}`);
  }
}

function* chunksOf(pages: Iterable<readonly PlantRow[]>, { head, record }: Format): Iterable<string> {
  if (head !== "") yield head;
  for (const page of pages) yield page.map(record).join("");
}

function stopped({ stderr }: StreamIo): number {
  stderr("Stopped: the export is incomplete\n");
  return 1;
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

interface Format {
  /** What stands before the first plant. */
  readonly head: string;
  readonly record: (plant: PlantRow) => string;
}

const FORMATS = {
  ndjson: { head: "", record: jsonLine },
  csv: { head: "id,name,tag\r\n", record: csvRecord },
} as const satisfies Record<string, Format>;

/** `JSON.stringify` takes no bigint, and an id is its own JSON. */
function jsonLine({ id, name, tag }: PlantRow): string {
  const tagMember = tag === null ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}\n`;
}

/** RFC 4180. As PostgreSQL reads it, a field without quotes can be absent; an empty text has them. */
function csvRecord({ id, name, tag }: PlantRow): string {
  return `${id},${csvField(name)},${tag === null ? "" : csvField(tag)}\r\n`;
}

function csvField(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
