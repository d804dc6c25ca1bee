// The second of three checks for corruption. It reads every plant and every index, once after each start of
// a server. `opening_check.ts` runs at each opening, and `check.ts` is the command.
import { INT64_MAX, INT64_MIN, kindOf, PLANT_FIELDS } from "../../plant/plant.ts";
import type { Client } from "./bun_driver.ts";
import { numberFrom } from "./driver.ts";
import { CorruptError, corruptionIn } from "./errors.ts";
import { requireIntegrity } from "./opening_check.ts";
import { COLUMN_KINDS } from "./schema.ts";

/**
 * Checks a whole database for corruption in one read transaction. Takes a tenth of a microsecond for each
 * plant.
 *
 * @returns The number of plants.
 * @throws {CorruptError | Error} The first finding.
 */
export function checkWhole(client: Client): number {
  client.run(CHECK_CELLS);
  requireIntegrity(client, "(1)");
  return numberFrom(client, "SELECT count(*) FROM plants");
}

/** Without this, SQLite may not notice that a cell lies outside its page. */
const CHECK_CELLS = "PRAGMA cell_size_check = ON";

/**
 * Checks a database for corruption in short read transactions, so that a server can restart its WAL in
 * between. Checks the other tables and their indexes first, then the plants in ranges of ids. Takes about
 * a microsecond for each plant. Unlike a check of the whole file, it does not find pages that no table
 * uses, or that two tables share.
 *
 * @returns The number of plants checked so far: yielded after each step, returned after the last.
 * @throws {CorruptError} If the database is corrupt. The message says where.
 */
export function* checkIntegrity(client: Client): Generator<number, number> {
  client.run(CHECK_CELLS);

  const tables = client
    .query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'plants'")
    .values();
  for (const table of ["sqlite_schema", ...tables.flat().map(String)]) {
    at(table, () => requireIntegrity(client, `("${table.replaceAll('"', '""')}")`));
    yield 0;
  }

  return yield* checkPlants(client);
}

/** The target duration of a range, in milliseconds. Meanwhile the WAL cannot restart. */
const RANGE_MS = 5;
const FIRST_RANGE_PLANTS = 1_000;

/**
 * Returns the query of a range. It reads each row to its end, and searches for it by its id. The search
 * misses a row that is out of order or below a wrong key: its plant could be stored twice.
 *
 * The order is descending, because only then does SQLite search for each id from the root. In ascending
 * order it steps to the next row.
 */
function rangeOf(client: Client): string {
  // A database of an older version may lack columns, or allow NULL in them.
  const rows = client.query(`SELECT name, "notnull" FROM pragma_table_info('plants')`).values();
  const isNotNull = new Map(rows as [string, bigint][]);
  const areSound = PLANT_FIELDS.filter((field) => isNotNull.has(field)).map((field) => {
    const isSound = COLUMN_KINDS[kindOf(field)].isSound(`stored."${field}"`);
    return isNotNull.get(field) === 1n ? isSound : `(stored."${field}" IS NULL OR ${isSound})`;
  });
  return `SELECT stored.id, ${["found.id IS NOT NULL", ...areSound].join(" AND ")}
    FROM (SELECT * FROM plants WHERE id <= ? ORDER BY id DESC LIMIT ?) AS stored
    LEFT JOIN plants AS found ON found.id = stored.id`;
}

/** Checks the plants in ranges, from the largest id down. Yields the number checked so far. */
function* checkPlants(client: Client): Generator<number, number> {
  const range = client.prepare<unknown, [bigint, number]>(rangeOf(client));
  let last = INT64_MAX + 1n;
  let limit = FIRST_RANGE_PLANTS;
  let checked = 0;

  for (;;) {
    const begin = performance.now();
    const rows = at(
      `plants below id ${last}`,
      () => range.values(last - 1n, limit) as [bigint, bigint][],
    );
    const isLast = rows.length < limit;

    for (const [id, isSound] of rows) {
      // A page that the tree references twice returns the same ids twice.
      if (id >= last) throw new CorruptError(`plants: id ${id} is out of order`);
      if (isSound !== 1n)
        throw new CorruptError(
          `plants: the row of id ${id} is not found by its id, or a field has a value of another kind`,
        );
      last = id;
    }

    checked += rows.length;

    // Adapt the range to the size of the plants: 10 bytes or 60,000.
    limit = Math.ceil(limit * (performance.now() - begin < RANGE_MS ? 2 : 0.5));
    if (isLast || last === INT64_MIN) return checked;
    yield checked;
  }
}

/** Runs a read, and adds the place to its finding of corruption. */
function at<Result>(where: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    const finding = corruptionIn(error);
    throw finding === undefined ? error : new CorruptError(`${where}: ${finding}`);
  }
}
