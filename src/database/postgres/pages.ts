// Reads, deletes and counts plants, for commands.
import { gte, lt, type SQL, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";

import { kindOf, type NewPlant, PLANT_FIELDS } from "../../plant/plant.ts";
import { PAGE_PLANTS, PAGE_TEXT } from "../database.ts";
import type { Work } from "./pool.ts";
import { plantFrom, type PlantRow, ROW } from "./postgres_plants.ts";
import { bigintArray, COLUMN_KINDS, plants } from "./schema.ts";

/**
 * Reads a page of plants from this id on, ordered by id, and returns once the synchronous standby has it.
 *
 * PostgreSQL shows rows that are not on any standby, if a crash or the end of a backend interrupted a commit
 * that waited. Even an empty page waits: an old primary, whose standby was promoted, lacks the newest plants
 * and can no longer commit.
 *
 * Reading and waiting use the same connection. If another server confirmed the page, it could contain plants
 * that a failover has lost.
 */
export function durablePage(from: bigint): Work<readonly NewPlant[]> {
  // Drizzle fills in the limits, which are numbers. The other parameter is `from`.
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
 * Commits without changing a row; needs no privilege. The commit waits for the synchronous standby, in WAL
 * order, so the standby then also has all rows that were read before.
 */
export const COMMIT_NOTHING = "SELECT pg_logical_emit_message(true, 'plant-store', '')";

/** Builds the SQL of the statements, once. The statements run on a `Connection`. */
const db = drizzle.mock();

/** The next rows. The limit is in a subquery, because Citus does not push it down through a window. */
const next = db
  .select(ROW)
  .from(plants)
  .where(gte(plants.id, sql.placeholder("from")))
  .orderBy(plants.id)
  .limit(PAGE_PLANTS)
  .as("next");

/** The length of a row's fields, in bytes. */
const rowBytes = sql.join(
  PLANT_FIELDS.map((field) => sql`coalesce(${COLUMN_KINDS[kindOf(field)].bytes(next[field])}, 0)`),
  sql` + `,
);

/** The next rows, each with the total length of the rows before it. */
const page = db
  .select({
    ...next._.selectedFields,
    before: sql<number>`sum(${rowBytes}) OVER (ORDER BY ${next.id}) - (${rowBytes})`.as("#before"),
  })
  .from(next)
  .as("page");

/** Selects a page: it ends after the row with which it reaches the maximum length. */
const SELECT_PAGE = db
  .select()
  .from(page)
  .where(lt(page.before, PAGE_TEXT))
  .orderBy(page.id)
  .toSQL();

const isOne: SQL = sql`${plants.id} = ANY(${sql.placeholder("ids")}::bigint[])`;
const FIND = db.select(ROW).from(plants).where(isOne).toSQL().sql;
const DELETE = db.delete(plants).where(isOne).toSQL().sql;
const COUNT = db
  .select({ count: sql<string>`count(*)`.as("count") })
  .from(plants)
  .toSQL().sql;

/** Reads the plants with these ids, and returns once the synchronous standby has them. */
export function findPlants(ids: readonly bigint[]): Work<readonly NewPlant[]> {
  return async ({ query }) => {
    const rows = await query<PlantRow>(FIND, [bigintArray(ids)]);
    await query(COMMIT_NOTHING);
    return rows.map(plantFrom);
  };
}

/**
 * Deletes the plants with these ids, and waits for the synchronous standby, because an earlier attempt may
 * have deleted them already.
 */
export function deletePlants(ids: readonly bigint[]): Work<void> {
  return async ({ query }) => {
    await query(DELETE, [bigintArray(ids)]);
    await query(COMMIT_NOTHING);
  };
}

/** Counts the plants, without a statement timeout. */
export const countPlants: Work<number> = async ({ query, script }) => {
  await script("SET statement_timeout = 0");
  const [row] = await query<{ readonly count: string }>(COUNT);
  return Number(row?.count);
};
