import type { HandPlant, Outcome } from "./by_hand_http.ts";
import { openPlants } from "./peers/sqlite.ts";

/**
 * Opens `plants.db`, as durable as plant-store's, and returns the function that stores a batch in
 * one transaction. SQLite makes its own checkpoints, every 1,000 pages.
 */
export function openByHand(): (batch: readonly HandPlant[]) => Outcome[] {
  const database = openPlants();
  const insert = database.prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
  const select = database.prepare<HandPlant, [HandPlant["id"]]>(
    "SELECT name, tag FROM plants WHERE id = ?",
  );

  function addOne({
    id,
    name,
    tag = null,
  }: {
    id: number;
    name: string;
    tag?: string | null;
  }): Outcome {
    if (insert.run(id, name, tag).changes === 1) return "stored";
    const stored = select.get(id);
    return stored !== null && stored.name === name && stored.tag === tag ? "stored" : "conflict";
  }

  return database.transaction((batch: readonly HandPlant[]) => batch.map(addOne)).immediate;
}
