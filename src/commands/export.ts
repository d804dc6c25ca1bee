import type { Command } from "commander";
import { withAbort } from "../async/deadline.ts";
import { eventLoopTurn } from "../async/timers.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import type { NewPlant } from "../plant/plant.ts";
import { parseChoice } from "../settings/parsers.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { type Io, writeOutput } from "./output.ts";

const HELP = `
Prints every plant that was stored when it began, and perhaps some that came
later; a backup is of one moment. CSV is as exact as JSON, but a spreadsheet
takes a cell that begins with =, +, - or @ for a formula. Import reads JSON.`;

/** Declares `plant-store export`. */
export function declareExport(program: Command, { io, action }: CommandContext): void {
  const command = program
    .command("export")
    .description("Print every plant, ordered by id, even while a server runs")
    .option("--format <format>", "How plants are written: ndjson or csv", "ndjson")
    .addHelpText("after", HELP)
    .addHelpText("after", examples("export > plants.ndjson"))
    .action(
      action(async ({ flags, config }) => {
        const formats = Object.keys(FORMATS) as ExportFormat[];
        const format = parseChoice({ name: "--format", text: String(flags["format"]) }, formats);
        return exportPlants((await config()).database, { format }, io);
      }),
    );
  addDatabaseFlag(command);
}

/** How plants are written. */
export type ExportFormat = keyof typeof FORMATS;

/**
 * Writes every plant that was stored before it began, ordered by id, even while a server runs. Memory does not grow
 * with the number of plants. If the file is marked as corrupt, it writes what can be read.
 *
 * @returns 0; 1 if it was stopped.
 * @throws {CommandError} If the output cannot be written.
 * @throws {BrokenPipe} If the reader of a pipe has ended.
 * @throws {DatabaseError} If the database cannot be read; or at the end, if the file is marked as corrupt.
 */
export async function exportPlants(
  database: DatabaseLocation,
  { format }: { format: ExportFormat },
  io: Io,
): Promise<number> {
  const { openPlants } = await adapterOf(database);
  await using reader = await openPlants((message) => io.stderr(`${message}\n`));
  const { head, record } = FORMATS[format];
  await write(io, head);
  for await (const page of reader.pages()) {
    if (io.stop.aborted) break;
    await write(io, page.map(record).join(""));
  }
  if (!io.stop.aborted) return 0;
  io.stderr("Stopped: the export is incomplete\n");
  return 1;
}

async function write(io: Io, text: string): Promise<void> {
  if (text !== "") await withAbort(writeOutput(io, text), io.stop);
  // Writing to a file does not wait: signals are handled here.
  await eventLoopTurn();
}

interface Format {
  /** The text before the first plant. */
  readonly head: string;
  readonly record: (plant: NewPlant) => string;
}

const FORMATS = {
  ndjson: { head: "", record: jsonLine },
  csv: { head: "id,name,tag\r\n", record: csvRecord },
} as const satisfies Record<string, Format>;

/** `JSON.stringify` accepts no bigint; the digits of an id are its JSON. */
function jsonLine({ id, name, tag }: NewPlant): string {
  const tagMember = tag === undefined ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}\n`;
}

/** RFC 4180. PostgreSQL reads an empty field as NULL, and one with quotes as an empty text. */
function csvRecord({ id, name, tag }: NewPlant): string {
  return `${id},${csvField(name)},${tag === undefined ? "" : csvField(tag)}\r\n`;
}

function csvField(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
