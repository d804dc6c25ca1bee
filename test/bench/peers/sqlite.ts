import { Database } from "bun:sqlite";

/** `plants.db` in the working directory, where a commit is fsynced. */
export function openPlants(): Database {
  const database = new Database("plants.db", { create: true, strict: true });
  database.run("PRAGMA busy_timeout = 5000");
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = FULL");
  database.run(
    "CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT) STRICT",
  );

  return database;
}
