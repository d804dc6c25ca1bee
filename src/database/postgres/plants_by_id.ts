import { type SQL, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";

import type { NewPlant } from "../../plant/plant.ts";
import { COMMIT_NOTHING } from "./pages.ts";
import type { Work } from "./pool.ts";
import { plantFrom, type PlantRow, ROW } from "./postgres_plants.ts";
import { bigintArray, plants } from "./schema.ts";

// Finds, deletes and counts plants, for commands. Finding and deleting also wait for the synchronous standby.

/** Builds the SQL of the statements, once. The statements run on a `Connection`. */
const db = drizzle.mock();

const isOne: SQL = sql`${plants.id} = ANY(${sql.placeholder("ids")}::bigint[])`;
const FIND = db.select(ROW).from(plants).where(isOne).toSQL().sql;
const DELETE = db.delete(plants).where(isOne).toSQL().sql;
const COUNT = db
  .select({ count: sql<string>`count(*)`.as("count") })
  .from(plants)
  .toSQL().sql;

/** Reads the plants with these ids. */
export function findPlants(ids: readonly bigint[]): Work<readonly NewPlant[]> {
  return async ({ query }) => {
    const rows = await query<PlantRow>(FIND, [bigintArray(ids)]);
    await query(COMMIT_NOTHING);
    return rows.map(plantFrom);
  };
}

/** Deletes the plants with these ids. An earlier attempt may have deleted them already. */
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
