// The second of three checks for corruption: reads every plant and every index, once beside each server.
// `opening_check.ts` is at each opening, and `check.ts` is the command.
import { INT64_MAX, INT64_MIN, kindOf, PLANT_FIELDS } from "../../plant/plant.ts";
import type { Client } from "./bun_driver.ts";
import { numberFrom } from "./driver.ts";
import { CorruptError, corruptionIn } from "./errors.ts";
import { requireIntegrity } from "./opening_check.ts";
import { COLUMN_KINDS } from "./schema.ts";

/**
 * Checks a whole database for corruption at once, in one read transaction: a tenth of a microsecond for
 * each plant.
 *
 * @returns How many plants are checked.
 * @throws {CorruptError | Error} What it finds first.
 */
export function checkWhole(client: Client): number {
  client.run(CHECK_CELLS);
  requireIntegrity(client, "(1)");
  return numberFrom(client, "SELECT count(*) FROM plants");
}

/** Without it SQLite reads a page whose cells lie outside of it, and may not notice. */
const CHECK_CELLS = "PRAGMA cell_size_check = ON";

/**
 * Checks a database for corruption in short read transactions, between which a server can move its
 * WAL. First come the other tables with their indexes, then the plants in ranges of their ids. It
 * takes about a microsecond for each plant, and does not see how all pages hang together.
 *
 * @returns How many plants are checked: yielded between two steps, and returned after the last one.
 * @throws {CorruptError} If it is corrupt: where, and what was found.
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

/** How long a range is meant to take, in milliseconds: that is how long it holds the WAL. */
const RANGE_MS = 5;
const FIRST_RANGE_PLANTS = 1_000;

/**
 * Reads each row to its end, and finds it again by its id. A row that is out of order, or behind a
 * wrong key of an inner page, is not found: its plant could be stored twice.
 *
 * The order is descending, because only then does SQLite search each id from the root. Ascending,
 * it steps to the next row.
 */
function rangeOf(client: Client): string {
  // A database of an older version has fewer columns, and may have a value that it did not require.
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

/** Checks the plants, a range of ids at a time, from the largest id down. Yields how many. */
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
      // A page that two places of the tree lead to gives the same ids twice.
      if (id >= last) throw new CorruptError(`plants: id ${id} is out of order`);
      if (isSound !== 1n)
        throw new CorruptError(
          `plants: the row of id ${id} is not found by its id, or a field has a value of another kind`,
        );
      last = id;
    }

    checked += rows.length;

    // A plant can be of 10 bytes or of 60,000.
    limit = Math.ceil(limit * (performance.now() - begin < RANGE_MS ? 2 : 0.5));
    if (isLast || last === INT64_MIN) return checked;
    yield checked;
  }
}

/** Says where SQLite finds a page that it cannot read. */
function at<Result>(where: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    const finding = corruptionIn(error);
    throw finding === undefined ? error : new CorruptError(`${where}: ${finding}`);
  }
}
