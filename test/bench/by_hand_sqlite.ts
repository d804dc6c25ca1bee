import { Database } from "bun:sqlite";
import type { HandPlant, Outcome } from "./by_hand_http.ts";

/**
 * Opens `plants.db` in the working directory and gives the function that stores a batch in one transaction. It
 * is as durable as the program it is compared with; SQLite makes its own checkpoints, every 1,000 pages.
 */
export function openByHand(): (batch: readonly HandPlant[]) => Outcome[] {
  const database = new Database("plants.db", { create: true, strict: true });
  database.run("PRAGMA busy_timeout = 5000");
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = FULL");
  database.run("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT) STRICT");
  const insert = database.prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
  const select = database.prepare<HandPlant, [HandPlant["id"]]>("SELECT name, tag FROM plants WHERE id = ?");

  function addOne({ id, name, tag = null }: { id: number | string; name: string; tag?: string | null }): Outcome {
    if (insert.run(id, name, tag).changes === 1) return "stored";
    const stored = select.get(id);
    return stored !== null && stored.name === name && stored.tag === tag ? "stored" : "conflict";
  }

  return database.transaction((batch: readonly HandPlant[]) => batch.map(addOne)).immediate;
}
