import type { Connection } from "./connection.ts";

/**
 * Commits a row of a table of its own as an insert of plants does, with the locks and the rights that plants need, and
 * adds no plant. In one statement: on a slow network each would cost a round trip of the time that a probe has.
 */
const PROBE = `WITH added AS (
    INSERT INTO plants (id, name) SELECT 0, '' WHERE false ON CONFLICT (id) DO NOTHING RETURNING id),
  stored AS MATERIALIZED (SELECT id FROM plants WHERE false FOR KEY SHARE)
  INSERT INTO probes (id, probed_at) SELECT $1::int, now()
    WHERE NOT EXISTS (SELECT FROM added) AND NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (id) DO UPDATE SET probed_at = excluded.probed_at`;

/** Servers that probe at once seldom wait for each other's commit. */
const PROBE_ROWS = 64;

/** Finds out whether plants can be stored now. */
export async function probe(connection: Connection): Promise<void> {
  await connection.query(PROBE, [String(Math.floor(Math.random() * PROBE_ROWS))]);
}
