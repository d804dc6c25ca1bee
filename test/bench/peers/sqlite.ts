import { Database } from "bun:sqlite";

import { isRequired, kindOf, PLANT_FIELDS } from "../../../src/plant/plant.ts";
import type { Outcome } from "../by_hand_http.ts";
import { COLUMNS, type HandPlant, isRowOf, valuesOf } from "../by_hand_plant.ts";

/** Stores a plant unless its id is taken. */
export const INSERT = `INSERT INTO plants (${COLUMNS}) VALUES (?${", ?".repeat(PLANT_FIELDS.length)}) ON CONFLICT DO NOTHING`;

/** `plants.db` in the working directory, where a commit is fsynced. */
export function openPlants(): Database {
  const database = new Database("plants.db", { create: true, strict: true });
  database.run("PRAGMA busy_timeout = 5000");
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = FULL");
  const columns = PLANT_FIELDS.map(
    (field) =>
      `"${field}" ${kindOf(field) === "text" ? "TEXT" : "ANY"} ${isRequired(field) ? "NOT NULL" : ""}`,
  );
  database.run(
    `CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, ${columns.join(", ")}) STRICT`,
  );

  return database;
}

/** Returns the function that stores a plant, by statements that are prepared once. */
export function storeInto(database: Database): (plant: HandPlant) => Outcome {
  const insert = database.prepare(INSERT);
  const select = database.prepare<Record<string, unknown>, [number]>(
    `SELECT ${COLUMNS} FROM plants WHERE id = ?`,
  );

  return (plant) => {
    if (insert.run(...valuesOf(plant)).changes === 1) return "stored";
    const row = select.get(plant.id);
    return row !== null && isRowOf(plant, row) ? "stored" : "conflict";
  };
}

/**
 * Opens `plants.db`, as durable as plant-store's, and returns the function that stores a batch in
 * one transaction. SQLite makes its own checkpoints, every 1,000 pages.
 */
export function openByHand(): (batch: readonly HandPlant[]) => Outcome[] {
  const database = openPlants();
  const addOne = storeInto(database);
  return database.transaction((batch: readonly HandPlant[]) => batch.map(addOne)).immediate;
}
