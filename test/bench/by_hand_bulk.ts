import { createReadStream } from "node:fs";
/**
 * Importing and exporting by hand: a loop over `JSON.parse` and one prepared statement. Ids are
 * numbers, so those past 2^53 are rounded; nothing is checked but the members that SQLite needs.
 *
 * `bun test/bench/by_hand_bulk.ts import plants.ndjson`, `bun test/bench/by_hand_bulk.ts export >
 * plants.ndjson`
 */
import { createInterface } from "node:readline";

import type { HandPlant } from "./by_hand_http.ts";
import { openPlants } from "./peers/sqlite.ts";

/** How many plants a transaction, or a piece of the output, has. */
const CHUNK = 10_000;

const [action, file = ""] = process.argv.slice(2);
const database = openPlants();
if (action === "import") await importPlants();
else exportPlants();
database.close();

async function importPlants(): Promise<void> {
  const insert = database.prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
  const insertAll = database.transaction((plants: readonly HandPlant[]) => {
    for (const { id, name, tag = null } of plants as {
      id: number;
      name: string;
      tag?: string | null;
    }[]) {
      insert.run(id, name, tag);
    }
  });

  let plants: HandPlant[] = [];
  for await (const line of createInterface({ input: createReadStream(file) })) {
    if (plants.push(JSON.parse(line)) < CHUNK) continue;
    insertAll(plants);
    plants = [];
  }

  insertAll(plants);
}

function exportPlants(): void {
  const writer = Bun.stdout.writer();
  const all = database.prepare<{ id: number; name: string; tag: string | null }, []>(
    "SELECT * FROM plants ORDER BY id",
  );
  let lines = 0;

  for (const { id, name, tag } of all.iterate()) {
    writer.write(`${JSON.stringify(tag === null ? { id, name } : { id, name, tag })}\n`);
    if (++lines % CHUNK === 0) writer.flush();
  }

  writer.end();
}
