import { hash } from "node:crypto";

import journal from "../../../drizzle/sqlite/meta/_journal.json" with { type: "json" };
import { compareLedger, ledgerEntry } from "../additions.ts";
import { DatabaseError } from "../database.ts";
import { numberFrom, type SqliteConnection } from "./driver.ts";
import { SQL } from "./migration_files.ts";

/** All migrations, in order. */
export const MIGRATIONS = journal.entries.map(({ tag, when }) => ({
  tag,
  when,
  sql: SQL[tag] as string,
}));

/** A migration: its name, its time in drizzle-kit's journal, and its SQL. */
export type Migration = (typeof MIGRATIONS)[number];

/** "plnt", in the header of the file, to recognize another application's database. */
export const APPLICATION_ID = 0x706c6e74;

/**
 * Migrates a database to the newest schema. Takes the write lock first: if two processes start at the same time,
 * one migrates, and the other has nothing left to do. Uses drizzle-kit's table of applied migrations.
 *
 * @returns The migrations that were applied: all of them if the database is new.
 * @throws {DatabaseError} As {@linkcode compareLedger}.
 */
export function applyMigrations(connection: SqliteConnection): readonly Migration[] {
  const applyMissing = connection.transaction(() => {
    connection.exec(LEDGER);
    const { missing } = readLedger(connection);
    for (const migration of missing) connection.exec(stepsOf(migration));
    return missing;
  });
  return applyMissing.immediate();
}

const LEDGER =
  "CREATE TABLE IF NOT EXISTS __drizzle_migrations (id INTEGER PRIMARY KEY, hash text NOT NULL, created_at numeric);\n";

function stepsOf({ when, sql }: Migration): string {
  const digest = hash("sha256", sql);
  // A version that does not know the first migration is another program, so mark no additions.
  const entry = when === MIGRATIONS[0]?.when ? digest : ledgerEntry(digest, sql);
  return `${sql.trimEnd()}
PRAGMA application_id = ${APPLICATION_ID};
INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('${entry}', ${when});
`;
}

/** Returns the SQL of a migration, as one transaction. */
export function migrationScript(migration: Migration): string {
  return `BEGIN IMMEDIATE;\n${LEDGER}${stepsOf(migration)}COMMIT;\n`;
}

/**
 * Reads the ledger of a database with our tables.
 *
 * @throws {DatabaseError} As {@linkcode compareLedger}.
 */
export function readLedger(connection: SqliteConnection) {
  const rows = connection.query("SELECT created_at, hash FROM __drizzle_migrations").values();
  return compareLedger(
    MIGRATIONS,
    rows.map(([when, entry]) => [Number(when), String(entry)] as const),
  );
}

/**
 * Reports whether a file has our tables. A new file has none.
 *
 * @throws {DatabaseError} If the tables belong to another application.
 */
export function hasOurTables(connection: SqliteConnection): boolean {
  // Count the tables before reading the id: another process may be creating both in one transaction.
  const hasTables = numberFrom(connection, "SELECT count(*) FROM sqlite_schema") > 0;
  const isOurs = numberFrom(connection, "PRAGMA application_id") === APPLICATION_ID;
  if (hasTables && !isOurs) throw new DatabaseError("it belongs to another application");
  return hasTables;
}
