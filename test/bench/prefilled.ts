import { join } from "node:path";
import { connect } from "../../src/adapters/sqlite/connection.ts";

/**
 * Makes `plants.db` with a number of plants, in the order of their ids, which are spread as random ones are: between
 * those that the generators draw.
 */
export function makePlants(directory: string, plants: number): void {
  using client = connect(join(directory, "plants.db"));
  const step = Math.floor(8e15 / plants);
  client.run(
    `INSERT INTO plants (id, name, tag)
     WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ${plants})
     SELECT 1000000000000000 + n * ${step}, 'Monstera deliciosa', 'indoor' FROM numbers`,
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
