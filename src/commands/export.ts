import { eventLoopTurn, withAbort } from "../async/timers.ts";
import { CommandError } from "../errors.ts";
import { type ColumnValue, columnValue, type NewPlant, PLANT_FIELDS } from "../plant/plant.ts";
import { parseChoice } from "../settings/parsers.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { type Io, warningsTo, writeOutput } from "./terminal.ts";

const HELP = `
Prints every plant that was stored when it began, and perhaps some that came
later; a backup is of one moment. CSV is as exact as JSON, but a spreadsheet
takes a cell that begins with =, +, - or @ for a formula. Import reads JSON.`;

/**
 * `plant-store export`: memory does not grow with the number of plants. Of a file that is marked as
 * corrupt, it writes all readable plants.
 */
export const exportPlants: Subcommand = {
  usage: "export",
  description: "Print every plant, ordered by id, even while a server runs",
  flags: [
    ["--format <format>", "How plants are written: ndjson or csv", "ndjson"],
    ...DATABASE_FLAGS,
  ],
  help: () => HELP,
  example: "export > plants.ndjson",
  async run({ flags, adapter, io }) {
    const format = parseChoice({ name: "--format", text: String(flags["format"]) }, [
      "ndjson",
      "csv",
    ]);

    const { openPlants } = await adapter();
    await using reader = await openPlants({ onWarning: warningsTo(io) });
    if (format === "csv") await write(io, `${CSV_FIELDS.join(",")}\r\n`);

    for await (const page of reader.pages()) {
      if (io.stop.aborted) break;
      await write(io, page.map(format === "csv" ? csvRecord : jsonLine).join(""));
    }

    if (io.stop.aborted) throw new CommandError("Stopped: the export is incomplete");
  },
};

async function write(io: Io, text: string): Promise<void> {
  await withAbort(writeOutput(io, text), io.stop);
  // Writing to a file does not wait: signals are handled here.
  await eventLoopTurn();
}

/**
 * Returns a plant as a line of JSON. JSON holds any integer, but `JSON.stringify` refuses a bigint.
 */
export function jsonLine(plant: NewPlant): string {
  const id = Number(plant.id);
  const line = `${JSON.stringify({ ...plant, id })}\n`;
  // A double rounds an id past 2^53. The id is the first member of the line.
  return Number.isSafeInteger(id) ? line : line.replace(`${id}`, `${plant.id}`);
}

const CSV_FIELDS = ["id", ...PLANT_FIELDS] as const;

/**
 * Returns a plant as a record of CSV (RFC 4180). PostgreSQL reads an empty field as NULL, and `""`
 * as an empty text.
 */
function csvRecord(plant: NewPlant): string {
  return `${CSV_FIELDS.map((field) => csvField(columnValue(plant, field))).join(",")}\r\n`;
}

function csvField(value: bigint | ColumnValue): string {
  if (value === null) return "";
  const text = String(value);
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
