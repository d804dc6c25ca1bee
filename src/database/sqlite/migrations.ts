import { hash } from "node:crypto";

import plantsAndTokens from "../../../drizzle/sqlite/0000_plants_and_tokens.sql" with { type: "text" };
import tokenLifetimes from "../../../drizzle/sqlite/0001_token_lifetimes.sql" with { type: "text" };
import tokenScopes from "../../../drizzle/sqlite/0002_token_scopes.sql" with { type: "text" };
import journal from "../../../drizzle/sqlite/meta/_journal.json" with { type: "json" };
import { DatabaseError } from "../database.ts";
import { type Connection, numberFrom } from "./driver.ts";

/** The migrations of drizzle-kit by journal tag, embedded: the executable has no folder to read. */
const SQL: Readonly<Record<string, string>> = {
  "0000_plants_and_tokens": plantsAndTokens,
  "0001_token_lifetimes": tokenLifetimes,
  "0002_token_scopes": tokenScopes,
};

/** All migrations, in order. */
export const MIGRATIONS = journal.entries.map(({ tag, when }) => ({
  tag,
  when,
  sql: SQL[tag] as string,
}));

/** When the newest known migration was made, in milliseconds since 1970 UTC. */
export const NEWEST = Math.max(...MIGRATIONS.map(({ when }) => when));

/** "plnt", in the header of the file: so another application's database is never taken for ours. */
export const APPLICATION_ID = 0x706c6e74;

/**
 * Brings a database to the newest schema. Takes the write lock first: if two processes start
 * together, one migrates and the other finds it done. The table of applied migrations is
 * drizzle-kit's own.
 *
 * @throws {DatabaseError} If a newer plant-store made the file.
 */
export function migrate(connection: Connection): void {
  const applyMissing = connection.transaction(() => {
    connection.exec(
      "CREATE TABLE IF NOT EXISTS __drizzle_migrations (id INTEGER PRIMARY KEY, hash text NOT NULL, created_at numeric)",
    );
    const applied = lastMigration(connection);

    for (const { sql, when } of MIGRATIONS.filter((migration) => migration.when > applied)) {
      connection.exec(sql);
      connection.exec(`PRAGMA application_id = ${APPLICATION_ID}`);
      const digest = hash("sha256", sql);
      connection.exec(
        `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('${digest}', ${when})`,
      );
    }
  });
  applyMissing.immediate();
}

/**
 * Whether a file has our tables; a new one has none.
 *
 * @throws {DatabaseError} If it has those of another application.
 */
export function hasOurTables(connection: Connection): boolean {
  // Count the tables before reading the id: another process may be creating both at this moment, in
  // one transaction.
  const hasTables = numberFrom(connection, "SELECT count(*) FROM sqlite_schema") > 0;
  const isOurs = numberFrom(connection, "PRAGMA application_id") === APPLICATION_ID;
  if (hasTables && !isOurs) throw new DatabaseError("it belongs to another application");
  return hasTables;
}

/**
 * When the last migration of a database was made, as {@linkcode NEWEST}; 0 if it has none.
 *
 * @throws {DatabaseError} If a newer plant-store made the file: it may store more of a plant than
 *   this one knows.
 */
export function lastMigration(connection: Connection): number {
  const last = numberFrom(connection, "SELECT max(created_at) FROM __drizzle_migrations");
  if (last > NEWEST) throw new DatabaseError("it was made by a newer plant-store");
  return last;
}
