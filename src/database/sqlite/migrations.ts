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

/** A migration: its name, its time in the journal of drizzle-kit, and its statements. */
export type Migration = (typeof MIGRATIONS)[number];

/** "plnt", in the header of the file: so another application's database is never taken for ours. */
export const APPLICATION_ID = 0x706c6e74;

/**
 * Brings a database to the newest schema. Takes the write lock first: if two processes start
 * together, one migrates and the other finds it done. The table of applied migrations is
 * drizzle-kit's own.
 *
 * @returns The migrations that were applied: all of them to a new database.
 * @throws {DatabaseError} If a newer plant-store made the file.
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
  // Who does not know the first migration has another program's tables.
  const entry = when === MIGRATIONS[0]?.when ? digest : ledgerEntry(digest, sql);
  return `${sql.trimEnd()}
PRAGMA application_id = ${APPLICATION_ID};
INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('${entry}', ${when});
`;
}

/** The SQL of a migration, as one transaction. */
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
 * Whether a file has our tables; a new one has none.
 *
 * @throws {DatabaseError} If it has those of another application.
 */
export function hasOurTables(connection: SqliteConnection): boolean {
  // Count the tables before reading the id: another process may be creating both at this moment, in
  // one transaction.
  const hasTables = numberFrom(connection, "SELECT count(*) FROM sqlite_schema") > 0;
  const isOurs = numberFrom(connection, "PRAGMA application_id") === APPLICATION_ID;
  if (hasTables && !isOurs) throw new DatabaseError("it belongs to another application");
  return hasTables;
}
