import type { Database } from "bun:sqlite";
import { eq, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { type NewPlant, samePlant } from "../../plant.ts";
import type { AddOutcome, PlantStore } from "../../plant_store.ts";
import { translated } from "./errors.ts";
import { fileIdentity } from "./file_identity.ts";
import { plants } from "./schema.ts";

/**
 * Plants in a SQLite database opened by `openDatabase`, which the store closes at its end. Every call is synchronous
 * inside: it holds the thread until the disk has answered.
 */
export function sqliteStore(client: Database): PlantStore {
  const requireSameFiles = fileIdentity(client.filename);
  const db = drizzle({ client });
  const { placeholder } = sql;
  const insert = db
    .insert(plants)
    .values({ id: placeholder("id"), name: placeholder("name"), tag: placeholder("tag") })
    .onConflictDoNothing();
  // Drizzle writes the statement, bun:sqlite runs it: filling Drizzle's placeholders costs more than the insert.
  const insertOne = client.prepare<void, [bigint, string, string | null]>(insert.toSQL().sql);
  const select = db
    .select({ name: plants.name, tag: plants.tag })
    .from(plants)
    .where(eq(plants.id, placeholder("id")))
    .prepare();

  const addAll = client.transaction((batch: readonly NewPlant[]) => batch.map(addOne)).immediate;

  function addOne(plant: NewPlant): AddOutcome {
    const { id, name, tag = null } = plant;
    const { changes } = insertOne.run(id, name, tag);
    if (changes === 1) return "added";
    const stored = select.get({ id });
    return stored !== undefined && samePlant(withoutNull(stored), plant) ? "present" : "conflict";
  }

  return {
    add: async (batch) => {
      const outcomes = translated(() => addAll(batch));
      requireSameFiles();
      return outcomes;
    },
    probe: async () => {
      // Setting the version that SQLite leaves to applications commits a page, as a plant does. It means nothing here.
      translated(() => client.run("PRAGMA user_version = 0"));
      requireSameFiles();
    },
    [Symbol.asyncDispose]: async () => close(client),
  };
}

function withoutNull({ name, tag }: { name: string; tag: string | null }) {
  return tag === null ? { name } : { name, tag };
}

/** Leaves one file: the WAL is moved into the database, and an error in doing so surfaces. */
function close(client: Database): void {
  try {
    client.run("PRAGMA wal_checkpoint(TRUNCATE)");
  } finally {
    client.close();
  }
}
