// The first of three checks for corruption. It runs at each opening, in constant time. `integrity.ts` reads
// every plant, and `check.ts` is the command.
import { DatabaseError } from "../database.ts";
import { numberFrom, type SqliteConnection, valueFrom } from "./driver.ts";
import { CODES, CorruptError } from "./errors.ts";

/**
 * Checks for corruption in a time that does not depend on the number of plants. It reads:
 *
 * - the pages from the root of the table of plants to its first and its last plant;
 * - the tables that a server reads next;
 * - the list of free pages, which the next plants use.
 *
 * SQLite itself compares the size of the file with its header.
 *
 * @throws {CorruptError | Error} If a page is corrupt.
 */
export function checkOnOpening(connection: SqliteConnection): void {
  connection.exec("PRAGMA cell_size_check = ON");
  for (const read of READS) connection.query(read).all();

  const free = numberFrom(connection, "PRAGMA freelist_count");
  const pages = numberFrom(connection, "PRAGMA page_count");
  if (free > pages) throw new CorruptError(`${free} pages are free of ${pages}`);

  // The check of the schema table includes the free pages.
  requireIntegrity(connection, '("sqlite_schema")');

  // Off again: it makes each later page read slower, by a tenth of the cost of an insert.
  connection.exec("PRAGMA cell_size_check = OFF");
}

/** Queries on tables that every version has. */
const READS = [
  "SELECT (SELECT min(id) FROM plants), (SELECT max(id) FROM plants)",
  "SELECT sum(created_at) FROM tokens",
  "SELECT max(revision) FROM token_revision",
  "SELECT max(created_at) FROM __drizzle_migrations",
];

/**
 * Runs SQLite's `integrity_check`.
 *
 * @param part `("plants")` to check one table, or `(1)` to stop at the first finding.
 * @throws {CorruptError | Error} If it finds corruption, or cannot read a page.
 */
export function requireIntegrity(connection: SqliteConnection, part: string): void {
  const result = valueFrom(connection, `PRAGMA integrity_check${part}`);
  if (result === "ok") return;

  const finding = String(result).replaceAll("\n", " ");
  // SQLite also lists pages that it could not read, for example because the WAL was removed. They may be
  // sound.
  const codes = Array.from(
    finding.matchAll(/ error code=(\d+)/g),
    ([, code]) => Number(code) & 0xff,
  );
  if (codes.some((code) => code !== CODES.CORRUPT))
    throw new DatabaseError(`it cannot be read (${finding}): see dmesg, and try again`);
  throw new CorruptError(finding);
}
