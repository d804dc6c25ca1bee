import type { Database } from "bun:sqlite";
import { DamageError } from "./errors.ts";
import { requireSound } from "./integrity.ts";

/**
 * Looks for damage where that takes as long for any number of plants: it reads the pages from the root of the plants to
 * their two ends, the tables that a server reads next, and the list of free pages, from which the next plants take
 * theirs. SQLite itself compares the size of the file with its header.
 *
 * @throws {DamageError | SQLiteError} If something is damaged.
 */
export function checkOnOpening(client: Database): void {
  client.run("PRAGMA cell_size_check = ON");
  const tables = new Set(client.query("SELECT name FROM sqlite_schema WHERE type = 'table'").values().flat());
  for (const [table, read] of Object.entries(READS)) if (tables.has(table)) client.query(read).values();
  requireFreePages(client);
  // It would cost each page that is read later a tenth of what an insert does.
  client.run("PRAGMA cell_size_check = OFF");
}

/** By table. A database of an older version has fewer tables. */
const READS = {
  plants: "SELECT (SELECT min(id) FROM plants), (SELECT max(id) FROM plants)",
  tokens: "SELECT sum(created_at) FROM tokens",
  token_revision: "SELECT max(revision) FROM token_revision",
  __drizzle_migrations: "SELECT max(created_at) FROM __drizzle_migrations",
} as const;

/**
 * Up to how many free pages their list is read: one page of it has a thousand. No command leaves more, because plants
 * are never deleted.
 */
const FREE_PAGES = 10_000;

function requireFreePages(client: Database): void {
  const [free, pages] = [count(client, "freelist_count"), count(client, "page_count")];
  if (free > pages) throw new DamageError(`${free} pages are free of ${pages}`);
  // The check of one table includes the free pages where that table is the schema.
  if (free <= FREE_PAGES) requireSound(client, 'integrity_check("sqlite_schema")');
}

function count(client: Database, pragma: string): number {
  return Number(client.query(`PRAGMA ${pragma}`).values()[0]?.[0]);
}
