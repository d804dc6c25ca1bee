import { gte, lt, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";

import { kindOf, type NewPlant, PLANT_FIELDS } from "../../plant/plant.ts";
import { PAGE_PLANTS, PAGE_TEXT } from "../database.ts";
import type { Work } from "./pool.ts";
import { plantFrom, type PlantRow, ROW } from "./postgres_plants.ts";
import { COLUMN_KINDS, plants } from "./schema.ts";

/**
 * Reads a page of plants, ordered by id, from this id on, and returns once the synchronous standby
 * has it.
 *
 * PostgreSQL shows rows that no standby has, if a crash or the end of a server process interrupted a
 * commit that waited. Even an empty page waits: an old primary, whose standby was promoted, lacks the
 * newest plants, and can no longer commit.
 *
 * It is one piece of work on one connection. Read on one server and committed on another, a page
 * could have plants that a failover has taken back.
 */
export function durablePage(from: bigint): Work<readonly NewPlant[]> {
  // The parameters that Drizzle knows are numbers, the limits of a page. The other one is `from`.
  const parameters = SELECT_PAGE.params.map((value) =>
    String(typeof value === "number" ? value : from),
  );

  return async ({ query }) => {
    const rows = await query<PlantRow>(SELECT_PAGE.sql, parameters);
    await query(COMMIT_NOTHING);
    return rows.map(plantFrom);
  };
}

/**
 * A commit that changes no row and needs no privilege. It waits for the synchronous standby, and
 * commits wait in the order of the WAL: so the standby also has what was read before.
 */
export const COMMIT_NOTHING = "SELECT pg_logical_emit_message(true, 'plant-store', '')";

/** Drizzle writes the statement once; a connection runs it. */
const db = drizzle.mock();

/** The next rows. Citus lets each node end at the limit, which it would not within a window. */
const next = db
  .select(ROW)
  .from(plants)
  .where(gte(plants.id, sql.placeholder("from")))
  .orderBy(plants.id)
  .limit(PAGE_PLANTS)
  .as("next");

/** How long the fields of a row are, in bytes. */
const rowBytes = sql.join(
  PLANT_FIELDS.map((field) => sql`coalesce(${COLUMN_KINDS[kindOf(field)].bytes(next[field])}, 0)`),
  sql` + `,
);

/** These rows, each with how long those before it are. */
const page = db
  .select({
    ...next._.selectedFields,
    before: sql<number>`sum(${rowBytes}) OVER (ORDER BY ${next.id}) - (${rowBytes})`.as("#before"),
  })
  .from(next)
  .as("page");

/** A page ends after the plant that makes it long enough. */
const SELECT_PAGE = db
  .select()
  .from(page)
  .where(lt(page.before, PAGE_TEXT))
  .orderBy(page.id)
  .toSQL();
