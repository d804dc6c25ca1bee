import { readdirSync } from "node:fs";

import type { ServingOptions } from "../../src/database/adapter.ts";
import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { openSqliteWorker } from "../../src/database/sqlite/sqlite_adapter.ts";
import { sqliteDatabase } from "../../src/database/sqlite/sqlite_database.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../src/group_commit/plant_store.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../../src/plant/plant.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "./plants.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "./program.ts";

/**
 * A directory with a database that holds these plants, and is not in use; gone at the end of the
 * scope.
 */
export async function databaseFixture(plants: readonly NewPlant[]) {
  const directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");
  {
    await using database = sqliteDatabase(connect(path));
    await database.plants.add(plants, { timeoutMs: TEST_TIMEOUT_MS });
  }
  return { ...directory, path, directory: directory.path };
}

/** The database of a server, with the store that is under its queue. */
export async function openWorker(path: string, options: Partial<ServingOptions> = {}) {
  const gathered = Promise.withResolvers<PlantStore>();
  const database = await openSqliteWorker(path, {
    create: true,
    ...options,
    makeQueue(store) {
      gathered.resolve(store);
      return groupCommit(store);
    },
  });
  return { ...database, plants: await gathered.promise };
}

/** The names of files, without those that SQLite keeps beside a database for whoever has it open. */
export function filesIn(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => !/-(?:wal|shm)$/.test(name))
    .toSorted();
}

/** Plants that are easily altered on the way, ordered by id. */
export const HOSTILE_PLANTS: readonly NewPlant[] = hostile([
  [INT64_MIN, ""],
  [INT64_MIN + 1n, "\n", "\r\n"],
  [-(2n ** 53n) - 1n, '"', '""'],
  [-1n, "\\", "\\n"],
  [0n, ",", ""],
  [1n, "\u2028\u2029\u0085", " "],
  [2n, "\u0001\u001f\u007f\t", "\uFEFF"],
  [3n, "\uFEFFFern", "null"],
  [4n, "🌱 \u{10FFFF} e\u0301 é", "'; DROP TABLE plants; --"],
  [5n, "x".repeat(60_000), "🌱".repeat(15_000)],
  [6n, '{"id":7,"name":"Fern"}\n{"id":8,"name":"Fern"}'],
  [7n, '🌱"\\\n🌱', '\\"\\'],
  [2n ** 53n, "even"],
  [2n ** 53n + 1n, "odd"],
  [INT64_MAX - 1n, "-"],
  [INT64_MAX, "=1+1", "@"],
]);

function hostile(texts: readonly (readonly [id: bigint, text: string, optional?: string])[]) {
  return texts.map(([id, text, optional]) =>
    fern({ id, [TEXT]: text, ...(optional !== undefined && { [OPTIONAL_TEXT]: optional }) }),
  );
}
