import type { Database } from "bun:sqlite";

import { eq, getTableColumns, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";

import { type NewPlant, plantOf, samePlant, textLength } from "../../plant/plant.ts";
import type { PlantReader } from "../adapter.ts";
import {
  type AddOutcome,
  DatabaseError,
  keysetPages,
  PAGE_PLANTS,
  PAGE_TEXT,
} from "../database.ts";
import { connect } from "./connection.ts";
import { withDatabaseError } from "./errors.ts";
import { corruptionMarker } from "./fail_stop.ts";
import { plants } from "./schema.ts";

const { placeholder } = sql;

/**
 * Prepares adding batches, each in one transaction. The connection may write. Each call blocks the
 * thread until the disk responds.
 */
export function addPlants(client: Database): (batch: readonly NewPlant[]) => readonly AddOutcome[] {
  const db = drizzle({ client });
  const insert = db.insert(plants).values(ROW).onConflictDoNothing();
  // Drizzle writes the statement, and bun:sqlite runs it: filling Drizzle's placeholders costs more
  // than the insert.
  const insertOne = client.prepare<void, (bigint | string | null)[]>(insert.toSQL().sql);
  const select = db
    .select()
    .from(plants)
    .where(eq(plants.id, placeholder("id")))
    .prepare();

  function addOne(plant: NewPlant): AddOutcome {
    const { changes } = insertOne.run(...COLUMNS.map((column) => plant[column] ?? null));
    if (changes === 1) return "added";
    const stored = select.get({ id: plant.id });
    return stored !== undefined && samePlant(toPlant(stored), plant) ? "present" : "conflict";
  }

  return client.transaction((batch: readonly NewPlant[]) => batch.map(addOne)).immediate;
}

/** The columns, in the order of the statement that inserts a row. */
const COLUMNS = Object.keys(getTableColumns(plants)) as (keyof NewPlant)[];

/** A placeholder for each column. */
const ROW = Object.fromEntries(COLUMNS.map((column) => [column, placeholder(column)])) as Record<
  keyof NewPlant,
  ReturnType<typeof placeholder>
>;

/** The row of a plant: `null` stands for a field that the plant does not have. */
type PlantRow = typeof plants.$inferSelect;

function toPlant(row: PlantRow): NewPlant {
  return plantOf(row.id, (field) => row[field]);
}

/**
 * Opens the plants of a database for reading only, even while a server writes to it.
 *
 * @throws {DatabaseError} If there is no such file, or it cannot be read.
 */
export function openPlants(path: string): PlantReader {
  const client = connect(path, { access: "read" });
  const marker = corruptionMarker(path);
  return {
    async *pages() {
      yield* keysetPages(readPage(client));
      // At the end: all that can be read was read, and a server may have found corruption
      // meanwhile. A row that SQLite does not reach from the root is missing without an error.
      const finding = marker.finding();
      if (finding !== undefined) {
        throw new DatabaseError(
          `Database "${path}" is corrupt (${finding}): plants may be missing`,
        );
      }
    },
    [Symbol.asyncDispose]: async () => client.close(),
  };
}

/**
 * Prepares reading pages of plants: from an id on, ordered by id.
 *
 * @throws {DatabaseError} If the database cannot be read, now or by a later call.
 */
export function readPage(client: Database): (from: bigint) => readonly NewPlant[] {
  const reading = <Result>(call: () => Result) => withDatabaseError("read", client.filename, call);
  const statement = reading(() => client.prepare<PlantRow, [bigint, number]>(PAGE));
  return (from) => reading(() => pageOf(statement.iterate(from, PAGE_PLANTS)));
}

/**
 * A file that is only read may be older than a column. Drizzle would name every column in double
 * quotes, and SQLite takes an unknown name in double quotes for a text.
 */
const PAGE = "SELECT * FROM plants WHERE id >= ? ORDER BY id LIMIT ?";

/**
 * A page also ends before a row that cannot be read: the next page begins there, and throws.
 * Leaving the loop early resets the statement, which ends its read transaction.
 */
function pageOf(rows: Iterable<PlantRow>): NewPlant[] {
  const page: NewPlant[] = [];
  let characters = 0;
  try {
    for (const row of rows) {
      const plant = toPlant(row);
      page.push(plant);
      characters += textLength(plant);
      if (characters >= PAGE_TEXT) break;
    }
  } catch (error) {
    if (page.length === 0) throw error;
  }
  return page;
}
