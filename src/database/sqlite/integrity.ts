import type { Database } from "bun:sqlite";
import { INT64_MAX, INT64_MIN } from "../../plant/plant.ts";
import { DamageError, findingOf } from "./errors.ts";

/** How much of a database to check. */
export interface IntegrityOptions {
  /**
   * Whether to let SQLite check how all pages hang together, too: one read transaction over the whole file, during
   * which the WAL grows with every write.
   */
  readonly whole: boolean;
}

/**
 * Checks a database for damage in short read transactions, so that a server beside it can go on moving its WAL:
 * the other tables with their indexes first, then the plants in ranges of their ids, and all pages together at the end.
 * The time grows with the number of plants: about a microsecond each.
 *
 * @returns How many plants are checked: yielded between two steps, and returned after the last one.
 * @throws {DamageError} If it is damaged: where, and what was found.
 */
export function* checkIntegrity(client: Database, { whole }: IntegrityOptions): Generator<number, number> {
  // Without it SQLite reads a page whose cells lie outside of it, and may not notice.
  client.run("PRAGMA cell_size_check = ON");
  for (const table of otherTables(client)) {
    at(table, () => requireSound(client, `integrity_check("${table.replaceAll('"', '""')}")`));
    yield 0;
  }
  const plants = yield* checkPlants(client);
  if (whole) {
    yield plants;
    at("the whole file", () => requireSound(client, "integrity_check"));
  }
  return plants;
}

function otherTables(client: Database): string[] {
  const names = client.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'plants'").values();
  return ["sqlite_schema", ...names.map(([name]) => String(name))];
}

/**
 * Runs one of SQLite's own checks.
 *
 * @param check The pragma, with its argument.
 * @throws {DamageError} If it finds something.
 */
export function requireSound(client: Database, check: string): void {
  const [result] = client.query(`PRAGMA ${check}`).values()[0] ?? [];
  if (result !== "ok") throw damaged(String(result));
}

/** How long a range is meant to take, in milliseconds: that is how long it holds the WAL. */
const RANGE_MS = 20;
const FIRST_RANGE_PLANTS = 1_000;

/**
 * Reads each row to its end, and finds it again by its id. A row that is out of order, or behind a wrong key of an inner
 * page, is not found, and its plant could be stored twice. The order is descending because only then does SQLite search
 * each id from the root; ascending, it steps to the next row.
 */
const RANGE = `
  SELECT stored.id, found.id IS NOT NULL
    AND typeof(stored.name) = 'text' AND length(stored.name) >= 0
    AND (stored.tag IS NULL OR typeof(stored.tag) = 'text' AND length(stored.tag) >= 0)
  FROM (SELECT id, name, tag FROM plants WHERE id <= ? ORDER BY id DESC LIMIT ?) AS stored
  LEFT JOIN plants AS found ON found.id = stored.id`;

function* checkPlants(client: Database): Generator<number, number> {
  const range = client.prepare<unknown, [bigint, number]>(RANGE);
  let [last, limit, checked] = [INT64_MAX + 1n, FIRST_RANGE_PLANTS, 0];
  for (;;) {
    const begin = performance.now();
    const rows = at(`plants below id ${last}`, () => range.values(last - 1n, limit) as [bigint, bigint][]);
    const isLast = rows.length < limit;
    last = requireDescending(rows, last);
    checked += rows.length;
    // A plant can be of 10 bytes or of 60,000.
    limit = Math.ceil(limit * (performance.now() - begin < RANGE_MS ? 2 : 0.5));
    if (isLast || last === INT64_MIN) return checked;
    yield checked;
  }
}

/** A page that two places of the tree lead to gives the same ids twice. */
function requireDescending(rows: readonly [bigint, bigint][], before: bigint): bigint {
  let last = before;
  for (const [id, isSound] of rows) {
    if (id >= last) throw damaged(`plants: id ${id} is out of order`);
    if (isSound !== 1n) throw damaged(`plants: the row of id ${id} is not found by its id, or holds no text`);
    last = id;
  }
  return last;
}

/** Says where, too, when SQLite finds a page that it cannot read. */
function at<Result>(where: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    const finding = findingOf(error);
    throw finding === undefined ? error : damaged(`${where}: ${finding}`);
  }
}

function damaged(finding: string): DamageError {
  return new DamageError(finding.replaceAll("\n", " "));
}
