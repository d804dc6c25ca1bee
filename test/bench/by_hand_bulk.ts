import { createReadStream } from "node:fs";
/**
 * Importing and exporting by hand: a loop over `JSON.parse` and one prepared statement. Ids are
 * numbers, so those past 2^53 are rounded; nothing is checked but the members that SQLite needs.
 *
 * `bun test/bench/by_hand_bulk.ts import plants.ndjson`, `bun test/bench/by_hand_bulk.ts export >
 * plants.ndjson`
 */
import { createInterface } from "node:readline";

import { type ColumnValue, type Plant, plantOfRow } from "../../src/plant/plant.ts";
import { COLUMNS, type HandPlant, valuesOf } from "./by_hand_plant.ts";
import { INSERT, openPlants } from "./peers/sqlite.ts";

/** How many plants a transaction, or a piece of the output, has. */
const CHUNK = 10_000;

const [action, file = ""] = process.argv.slice(2);
const database = openPlants();
if (action === "import") await importPlants();
else exportPlants();
database.close();

async function importPlants(): Promise<void> {
  const insert = database.prepare(INSERT);
  const insertAll = database.transaction((plants: readonly HandPlant[]) => {
    for (const plant of plants) insert.run(...valuesOf(plant));
  });

  let plants: HandPlant[] = [];
  for await (const line of createInterface({ input: createReadStream(file) })) {
    if (plants.push(JSON.parse(line)) < CHUNK) continue;
    insertAll(plants);
    plants = [];
  }

  insertAll(plants);
}

/** The id is in truth a number, which JSON.stringify takes: `plantOfRow()` hands it on. */
type Row = { readonly id: bigint } & Readonly<Record<keyof Plant, ColumnValue>>;

function exportPlants(): void {
  const writer = Bun.stdout.writer();
  const all = database.prepare<Row, []>(`SELECT ${COLUMNS} FROM plants ORDER BY id`);
  let lines = 0;

  for (const row of all.iterate()) {
    writer.write(`${JSON.stringify(plantOfRow(row.id, row))}\n`);
    if (++lines % CHUNK === 0) writer.flush();
  }

  writer.end();
}
