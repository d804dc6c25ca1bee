import { eq, getTableColumns, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";

import { type ColumnValue, columnValue, type NewPlant, plantOfRow } from "../../plant/plant.ts";
import { type Database, keysetPages } from "../database.ts";
import type { Client } from "./bun_driver.ts";
import type { PlantRows } from "./driver.ts";
import { BUSY_TIMEOUT_MS } from "./opening.ts";
import { countPlants, findPlants, readPage } from "./pages.ts";
import { plants } from "./schema.ts";
import { openStore, type StoreOptions } from "./store.ts";
import { type SqliteTokens, sqliteTokens } from "./tokens.ts";

/** A SQLite database on this thread. */
export interface SqliteDatabase extends Database {
  readonly tokens: SqliteTokens;
  /** Resolves with the cause once the database may acknowledge nothing. Never rejects. */
  readonly failed: Promise<Error>;
  /** Marks the file as corrupt, and fails the database. */
  reportCorruption(finding: string): void;
}

/**
 * Returns the database of a connection that may write. Uses statements by Drizzle. Disposing of the database
 * closes the connection.
 */
export function sqliteDatabase(
  client: Client,
  options: Partial<Omit<StoreOptions, "statements">> = {},
): SqliteDatabase {
  const store = openStore(client, {
    lockTimeoutMs: BUSY_TIMEOUT_MS,
    walBytes: new Float64Array(1),
    ...options,
    statements: drizzleRows(client),
  });
  const pageFrom = readPage(client);
  const deleteAll = client.transaction((ids: readonly bigint[]) => {
    for (const id of ids) client.query<void, [bigint]>("DELETE FROM plants WHERE id = ?").run(id);
  });

  return {
    plants: store,
    tokens: sqliteTokens(client, store),
    pages: () => keysetPages(pageFrom),
    find: async (ids) => findPlants(client, ids),
    count: () => countPlants(client),
    delete: (ids) =>
      store.write(() => {
        // Otherwise the file keeps the content of a deleted plant.
        client.run("PRAGMA secure_delete = ON");
        deleteAll.immediate(ids);
      }),
    failed: store.failed,
    reportCorruption: store.reportCorruption,
    [Symbol.asyncDispose]: store[Symbol.asyncDispose],
  };
}

const { placeholder } = sql;

/** Prepares Drizzle's statements for plants. */
export function drizzleRows(client: Client): PlantRows {
  const db = drizzle({ client });
  const insert = db.insert(plants).values(ROW).onConflictDoNothing({ target: plants.id });
  // Drizzle builds the statement, but bun:sqlite runs it: filling Drizzle's placeholders costs more than the
  // insert.
  const insertOne = client.prepare<void, (bigint | ColumnValue)[]>(insert.toSQL().sql);
  const select = db
    .select()
    .from(plants)
    .where(eq(plants.id, placeholder("id")))
    .prepare();

  return {
    insert: (plant) =>
      insertOne.run(...COLUMNS.map((column) => columnValue(plant, column))).changes === 1,
    find(id) {
      const row = select.get({ id });
      return row && plantOfRow(row.id, row);
    },
  };
}

/** The columns, in the order of the INSERT. */
const COLUMNS = Object.keys(getTableColumns(plants)) as (keyof NewPlant)[];

/** A placeholder for each column. */
const ROW = Object.fromEntries(COLUMNS.map((column) => [column, placeholder(column)])) as Record<
  keyof NewPlant,
  ReturnType<typeof placeholder>
>;
