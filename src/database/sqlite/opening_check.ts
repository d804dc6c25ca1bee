// The first of three checks for corruption: at each opening, in the same time for any number of plants.
// `integrity.ts` reads every plant, and `check.ts` is the command.
import { DatabaseError } from "../database.ts";
import { numberFrom, type SqliteConnection, valueFrom } from "./driver.ts";
import { CODES, CorruptError } from "./errors.ts";

/**
 * Looks for corruption in a time that does not depend on the number of plants. Reads the pages from
 * the root of the plants to their two ends, and the tables that a server reads next. Reads the list
 * of free pages, too: the next plants go there. SQLite itself compares the size of the file with
 * its header.
 *
 * @throws {CorruptError | Error} If something is corrupt.
 */
export function checkOnOpening(connection: SqliteConnection): void {
  connection.exec("PRAGMA cell_size_check = ON");
  for (const read of READS) connection.query(read).all();

  const free = numberFrom(connection, "PRAGMA freelist_count");
  const pages = numberFrom(connection, "PRAGMA page_count");
  if (free > pages) throw new CorruptError(`${free} pages are free of ${pages}`);

  // The check of one table includes the free pages if that table is the schema.
  requireIntegrity(connection, '("sqlite_schema")');

  // Off again: it adds a tenth of an insert's cost to every later page read.
  connection.exec("PRAGMA cell_size_check = OFF");
}

/** Of the tables that every version has. */
const READS = [
  "SELECT (SELECT min(id) FROM plants), (SELECT max(id) FROM plants)",
  "SELECT sum(created_at) FROM tokens",
  "SELECT max(revision) FROM token_revision",
  "SELECT max(created_at) FROM __drizzle_migrations",
];

/**
 * SQLite's own check.
 *
 * @param part Of one table, `("plants")`; or `(1)`, to the first finding. @default {all}
 * @throws {CorruptError | Error} What it finds, or could not read.
 */
export function requireIntegrity(connection: SqliteConnection, part = ""): void {
  const result = valueFrom(connection, `PRAGMA integrity_check${part}`);
  if (result === "ok") return;

  const finding = String(result).replaceAll("\n", " ");
  // SQLite also lists pages that it could not read, as after the WAL was removed: they may be sound.
  const codes = Array.from(
    finding.matchAll(/ error code=(\d+)/g),
    ([, code]) => Number(code) & 0xff,
  );
  if (codes.some((code) => code !== CODES.CORRUPT))
    throw new DatabaseError(`it cannot be read (${finding}): see dmesg, and try again`);
  throw new CorruptError(finding);
}
