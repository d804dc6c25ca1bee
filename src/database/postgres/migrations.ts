import plantsAndTokens from "../../../drizzle/postgres/0000_plants_and_tokens.sql" with { type: "text" };
import journal from "../../../drizzle/postgres/meta/_journal.json";
import { DatabaseError } from "../database.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";

/** The migrations that drizzle-kit generated, by journal tag. Embedded, because the executable has no folder to read. */
const SQL: Readonly<Record<string, string>> = {
  "0000_plants_and_tokens": plantsAndTokens,
};

/** One migration. */
export interface Migration {
  readonly tag: string;
  /** When it was made, in milliseconds since 1970 UTC. */
  readonly when: number;
  readonly sql: string;
}

/** Every migration, in order. */
export const MIGRATIONS: readonly Migration[] = journal.entries.map(({ tag, when }) => ({
  tag,
  when,
  sql: SQL[tag] as string,
}));

/** The table of applied migrations. It identifies a plant-store schema. */
const LEDGER = "plant_store_migrations";

/** Lists the tables of the current schema, and finds a ledger in another one. The catalog shows even unreadable tables. */
const CONTENTS = `SELECT current_schema() AS schema, coalesce((SELECT string_agg(tablename, ',')
  FROM pg_catalog.pg_tables WHERE schemaname = current_schema()), '') AS tables,
  (SELECT min(schemaname) FROM pg_catalog.pg_tables WHERE tablename = '${LEDGER}') AS other,
  has_table_privilege(to_regclass('${LEDGER}')::oid, 'SELECT') AS may_read`;

interface Contents {
  readonly schema: string | null;
  readonly tables: string;
  readonly other: string | null;
  /** Whether the role may read the ledger. Null if there is none. */
  readonly may_read: boolean | null;
}

/**
 * Returns the migrations to apply: all of them if the schema is empty.
 *
 * @throws {DatabaseError} If the schema belongs to another application or a newer plant-store, or another schema has the
 * tables.
 */
export async function pendingMigrations(connection: Connection): Promise<readonly Migration[]> {
  const [contents] = await connection.query<Contents>(CONTENTS);
  if (contents === undefined || contents.schema === null) {
    throw new DatabaseError("no schema in its search_path exists: create one");
  }
  const tables = contents.tables.split(",").filter((table) => table !== "");
  if (contents.may_read === false) throw new DatabaseError(`the user lacks SELECT on ${LEDGER}: GRANT it`);
  if (tables.includes(LEDGER)) return await unapplied(connection);
  // A second, empty set of tables would accept every id again.
  if (contents.other !== null) {
    throw new DatabaseError(
      `search_path leads to schema "${contents.schema}", but the plant-store tables are in "${contents.other}": set search_path to that schema`,
    );
  }
  if (tables.length > 0) throw new DatabaseError(`schema "${contents.schema}" belongs to another application`);
  return MIGRATIONS;
}

async function unapplied(connection: Connection): Promise<readonly Migration[]> {
  const rows = await connection.query<{ made_at: string }>(`SELECT made_at FROM ${LEDGER}`);
  const applied = new Set(rows.map(({ made_at }) => Number(made_at)));
  const known = MIGRATIONS.map(({ when }) => when);
  if (Math.max(...applied) > Math.max(...known)) throw new DatabaseError("it was made by a newer plant-store");
  return MIGRATIONS.filter(({ when }) => !applied.has(when));
}

/** The SQL that {@linkcode migrate} runs for a migration, as one transaction for another program. */
export function scriptOf(migration: Migration): string {
  return `BEGIN;\n${statementsOf(migration)}COMMIT;\n`;
}

/** Rivals wait for the ledger's row, up to the session's statement_timeout. A change to a large table has no time limit. */
function statementsOf({ tag, when, sql }: Migration): string {
  return `SET LOCAL lock_timeout = 0;
CREATE TABLE IF NOT EXISTS ${LEDGER} (made_at bigint PRIMARY KEY, tag text NOT NULL);
INSERT INTO ${LEDGER} VALUES (${when}, '${tag}');
SET LOCAL statement_timeout = 0;
${sql.replaceAll("--> statement-breakpoint\n", "").trimEnd()}
`;
}

/**
 * Migrates the schema, with one transaction for each migration. Any number of servers may do so at once. Each inserts the
 * migration's row first; all but one of them wait there, fail, and then find it applied.
 *
 * @returns The migrations that this server applied.
 * @throws {DatabaseError} As {@linkcode pendingMigrations}, or if the role may not create tables.
 */
export async function migrate(connection: Connection): Promise<readonly Migration[]> {
  const applied: Migration[] = [];
  for (let tries = 0; ; tries++) {
    const [next] = await pendingMigrations(connection);
    if (next === undefined) return applied;
    try {
      await connection.script(statementsOf(next));
      applied.push(next);
    } catch (error) {
      if (!(error instanceof PostgresFailure)) throw error;
      if (error.code === "42501") throw new DatabaseError(MAY_NOT_CREATE, { cause: error });
      if (!RIVAL.has(error.code) || tries >= MAX_TRIES) throw error;
    }
  }
}

const MAY_NOT_CREATE = "the user may not create tables: run plant-store migrate once as a user who may";

/** SQLSTATEs of the server that loses the race. Even CREATE TABLE IF NOT EXISTS fails while another commits. */
const RIVAL = new Set(["23505", "42P07", "42710", "42701", "40001", "40P01"]);

/** Each failed try means that one rival was faster. */
const MAX_TRIES = 50;
