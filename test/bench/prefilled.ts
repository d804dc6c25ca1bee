import type { Database } from "bun:sqlite";
import { join } from "node:path";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { columnValue, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { fern, literalOf, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";

/** What each plant of the benchmarks is beside its id. */
export const MONSTERA = fern({ [TEXT]: "Monstera deliciosa", [OPTIONAL_TEXT]: "indoor" });

/** Of the plants, how many are inserted at random places among the others, and in how many turns. */
const RANDOM = { share: 0.3, turns: 6 };

/**
 * Makes `plants.db` with a number of plants. Their ids are spread over those that the generators
 * draw, and their pages are as full as random ids leave them. Ascending ids alone fill each page to
 * its end. Then the first random id on a page splits it, which costs twice as much as in a table that
 * has grown by random ids.
 */
export function makePlants(directory: string, plants: number): void {
  using client = connect(join(directory, "plants.db"));
  client.run("PRAGMA synchronous = OFF");
  const ascending = Math.round(plants * (1 - RANDOM.share));
  const step = Math.floor(8e15 / ascending);

  insert(client, ascending, `SELECT 1000000000000000 + n * ${step} AS id FROM numbers`);
  const turn = Math.round((plants - ascending) / RANDOM.turns);

  // Sorted, each turn meets the pages in their order, which is faster by far.
  const random =
    "SELECT 1000000000000000 + abs(random() % 8000000000000000) AS id FROM numbers ORDER BY id";
  for (let turns = 0; turns < RANDOM.turns; turns++) insert(client, turn, random);
}

/** Inserts a plant for each id that a query makes of the numbers from 1 on. */
function insert(client: Database, count: number, ids: string): void {
  const columns = PLANT_FIELDS.map((field) => `"${field}"`);
  client.run(
    `INSERT OR IGNORE INTO plants (id, ${columns})
     WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ${count})
     SELECT id, ${PLANT_FIELDS.map((field) => literalOf(columnValue(MONSTERA, field)))} FROM (${ids})`,
  );
  client.run("PRAGMA wal_checkpoint(TRUNCATE)");
}

/** Makes `plants.db` with a number of tokens, all of them accepted. */
export function makeTokens(directory: string, tokens: number): void {
  using client = connect(join(directory, "plants.db"));
  client.run(
    `INSERT INTO tokens (name, digest, created_at)
     WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ${tokens})
     SELECT 'client ' || n, randomblob(32), 0 FROM numbers`,
  );
  client.run("UPDATE token_revision SET revision = revision + 1");
}
