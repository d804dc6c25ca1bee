import type { Database } from "bun:sqlite";
import { asc, eq, gte, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import type { NewPlant } from "../../plant/plant.ts";
import type { PlantReader } from "../adapter.ts";
import { type AddOutcome, DatabaseError, keysetPages, PAGE_PLANTS, PAGE_TEXT } from "../database.ts";
import { connect } from "./connection.ts";
import { corruptionMarker } from "./fail_stop.ts";
import { withDatabaseError } from "./errors.ts";
import { plants } from "./schema.ts";

const { placeholder } = sql;

/**
 * Prepares adding batches, each in one transaction. The connection may write. Each call blocks the thread until the
 * disk responds.
 */
export function addPlants(client: Database): (batch: readonly NewPlant[]) => readonly AddOutcome[] {
  const db = drizzle({ client });
  const insert = db
    .insert(plants)
    .values({ id: placeholder("id"), name: placeholder("name"), tag: placeholder("tag") })
    .onConflictDoNothing();
  // Drizzle writes the statement, and bun:sqlite runs it: filling Drizzle's placeholders costs more than the insert.
  const insertOne = client.prepare<void, [bigint, string, string | null]>(insert.toSQL().sql);
  const select = db
    .select({ name: plants.name, tag: plants.tag })
    .from(plants)
    .where(eq(plants.id, placeholder("id")))
    .prepare();

  function addOne(plant: NewPlant): AddOutcome {
    const { id, name, tag = null } = plant;
    const { changes } = insertOne.run(id, name, tag);
    if (changes === 1) return "added";
    const stored = select.get({ id });
    return stored?.name === name && stored.tag === tag ? "present" : "conflict";
  }

  return client.transaction((batch: readonly NewPlant[]) => batch.map(addOne)).immediate;
}

/** The row of a plant: an absent tag is `null`. */
type PlantRow = typeof plants.$inferSelect;

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
      // At the end: all that can be read was read, and a server may have found corruption meanwhile. A row that SQLite
      // does not reach from the root is missing without an error.
      const finding = marker.finding();
      if (finding !== undefined) {
        throw new DatabaseError(`Database "${path}" is corrupt (${finding}): plants may be missing`);
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
  const query = drizzle({ client })
    .select()
    .from(plants)
    .where(gte(plants.id, placeholder("from")))
    .orderBy(asc(plants.id))
    .limit(placeholder("limit"));
  // Unlike Drizzle's statement, one of bun:sqlite can be left in the middle of its rows.
  const reading = <Result>(call: () => Result) => withDatabaseError("read", client.filename, call);
  const statement = reading(() => client.prepare<PlantRow, [bigint, number]>(query.toSQL().sql));
  return (from) => reading(() => pageOf(statement.iterate(from, PAGE_PLANTS)));
}

/**
 * A page also ends before a row that cannot be read: the next page begins there, and throws. Leaving the loop early
 * resets the statement, which ends its read transaction.
 */
function pageOf(rows: Iterable<PlantRow>): NewPlant[] {
  const page: NewPlant[] = [];
  let characters = 0;
  try {
    for (const { id, name, tag } of rows) {
      page.push(tag === null ? { id, name } : { id, name, tag });
      characters += name.length + (tag?.length ?? 0);
      if (characters >= PAGE_TEXT) break;
    }
  } catch (error) {
    if (page.length === 0) throw error;
  }
  return page;
}
