import journal from "../../../drizzle/postgres/meta/_journal.json" with { type: "json" };
import { pause } from "../../async/timers.ts";
import type { OnWarning } from "../adapter.ts";
import { compareLedger, ledgerEntry, warnOfAdditions } from "../additions.ts";
import { DatabaseError } from "../database.ts";
import type { Connection } from "./connection.ts";
import { codeOf } from "./errors.ts";
import { SQL } from "./migration_files.ts";
import { howToRun } from "./url.ts";

/** All migrations, in order. `when` is in milliseconds since 1970 UTC. */
export const MIGRATIONS = journal.entries.map(({ tag, when }) => ({
  tag,
  when,
  sql: SQL[tag] as string,
}));

type Migration = (typeof MIGRATIONS)[number];

/** The table of applied migrations. It identifies a plant-store schema. */
const LEDGER = "plant_store_migrations";

/**
 * Describes the current schema, and finds another schema with a ledger. Reads the catalog, which shows even
 * tables that the role may not read.
 */
const CONTENTS = `SELECT current_schema() AS schema, count(*)::int AS tables,
  count(*) FILTER (WHERE tablename = '${LEDGER}') > 0 AS has_ledger,
  (SELECT min(schemaname) FROM pg_catalog.pg_tables WHERE tablename = '${LEDGER}') AS other,
  (SELECT min(nspname) FROM pg_catalog.pg_namespace WHERE NOT has_schema_privilege(oid, 'USAGE')
    AND nspname = ANY (SELECT replace(btrim(name, ' "'), '$user', current_user)
      FROM unnest(string_to_array(current_setting('search_path'), ',')) AS name)) AS unusable,
  has_table_privilege(to_regclass('${LEDGER}')::oid, 'SELECT') AS may_read
  FROM pg_catalog.pg_tables WHERE schemaname = current_schema()`;

interface Contents {
  readonly schema: string | null;
  readonly tables: number;
  readonly has_ledger: boolean;
  readonly other: string | null;
  /** A schema in the `search_path` that the role may not use: PostgreSQL passes over it. */
  readonly unusable: string | null;
  /** Whether the role may read the ledger. Null if there is none. */
  readonly may_read: boolean | null;
}

/**
 * Returns the migrations to apply: all of them if the schema is empty.
 *
 * @param onWarning Called if a later version has added tables or columns.
 * @throws {DatabaseError} If the schema belongs to another application or to an incompatible newer plant-store, or
 *   if another schema has the tables.
 */
export async function pendingMigrations(
  connection: Connection,
  onWarning: OnWarning = () => {},
): Promise<readonly Migration[]> {
  const [{ schema, tables, has_ledger, other, unusable, may_read }] = (await connection.query(
    CONTENTS,
  )) as [Contents];

  if (unusable !== null && (schema === null || unusable === other))
    throw new DatabaseError(`the user lacks USAGE on schema "${unusable}": GRANT it`);
  if (schema === null) throw new DatabaseError("no schema in its search_path exists: create one");
  if (may_read === false) throw new DatabaseError(`the user lacks SELECT on ${LEDGER}: GRANT it`);
  if (has_ledger) return await unapplied(connection, onWarning);

  // A second, empty set of tables would accept every id again.
  if (other !== null) {
    throw new DatabaseError(
      `search_path leads to schema "${schema}", but the plant-store tables are in "${other}": set search_path to that schema`,
    );
  }

  if (tables > 0)
    throw new DatabaseError(
      `schema "${schema}" has another application's tables: create a database or a schema for plant-store`,
    );
  return MIGRATIONS;
}

/**
 * Requires the privileges for {@linkcode migrateSchema}. Only the owner of the tables may alter them, and the same
 * role owns the ledger.
 *
 * @throws {DatabaseError} If the role lacks a privilege.
 */
export async function requireCreate({ query }: Connection): Promise<void> {
  const [{ may_migrate }] = (await query(
    `SELECT has_schema_privilege(current_schema(), 'CREATE') AND NOT EXISTS (SELECT FROM pg_catalog.pg_class
      WHERE oid = to_regclass('${LEDGER}') AND NOT pg_has_role(relowner, 'USAGE')) AS may_migrate`,
  )) as [{ readonly may_migrate: boolean }];
  if (!may_migrate) throw new DatabaseError(NO_CREATE);
}

/** Returns the migrations that are not in the ledger. */
async function unapplied(
  { query }: Connection,
  onWarning: OnWarning,
): Promise<readonly Migration[]> {
  const rows = await query<LedgerRow>(`SELECT made_at, tag FROM ${LEDGER}`);
  const entries = rows.map(({ made_at, tag }) => [Number(made_at), tag] as const);
  const { missing, additions } = compareLedger(MIGRATIONS, entries);
  warnOfAdditions(additions, onWarning);
  return missing;
}

interface LedgerRow {
  readonly made_at: string;
  readonly tag: string;
}

/** The key of the advisory lock that lets one session at a time migrate: "plnt". */
const LOCK = 0x706c6e74;

/**
 * The `lock_timeout` of a migration, in milliseconds. Meanwhile the plants of all servers wait behind it.
 */
const LOCK_TIMEOUT_MS = 1_000;
/** The pause before the next attempt, in milliseconds, in which waiting plants are stored. */
const LOCK_PAUSE_MS = 2_000;
/** How long to retry while a database is opened or restored, in milliseconds. */
const PATIENCE_MS = 5_000;

/**
 * Returns the SQL of a migration, as one transaction. Changing a large table has no time limit, but waiting
 * for its lock has one.
 */
export function scriptOf({ tag, when, sql }: Migration): string {
  // A version that does not know the first migration is another program, so mark no additions.
  const entry = when === MIGRATIONS[0]?.when ? tag : ledgerEntry(tag, sql);
  return `BEGIN;
DO $$ BEGIN PERFORM pg_advisory_xact_lock(${LOCK}); END $$;
SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS};
CREATE TABLE IF NOT EXISTS ${LEDGER} (made_at bigint PRIMARY KEY, tag text NOT NULL);
INSERT INTO ${LEDGER} VALUES (${when}, '${entry}');
SET LOCAL statement_timeout = 0;
${sql.replaceAll("--> statement-breakpoint\n", "").trimEnd()}
COMMIT;
`;
}

/**
 * Migrates the schema, with one transaction for each migration. Several servers may call this at the same
 * time: one migrates, and the others wait, up to the session's `statement_timeout`, and find nothing left to
 * do. Closing the connection releases the advisory lock. While another session, such as pg_dump, locks a
 * table, a migration is retried.
 *
 * @param patienceMs How long to retry, in milliseconds. @default {PATIENCE_MS}
 * @returns The migrations that this server applied.
 * @throws {DatabaseError} As {@linkcode pendingMigrations}. Also if the role may not create or alter tables,
 *   or another session keeps its lock.
 */
export async function migrateSchema(
  connection: Connection,
  patienceMs = PATIENCE_MS,
): Promise<readonly Migration[]> {
  await connection.script(`SET lock_timeout = 0; SELECT pg_advisory_lock(${LOCK})`);
  const pending = await pendingMigrations(connection);

  const deadline = performance.now() + patienceMs;
  for (const migration of pending) {
    try {
      await apply(connection, migration, deadline);
    } catch (error) {
      const reason = REFUSALS[codeOf(error)]?.(migration);
      throw reason === undefined ? error : new DatabaseError(reason, { cause: error });
    }
  }

  return pending;
}

/** Applies a migration. Retries while another session has a lock on its table. */
async function apply(
  connection: Connection,
  migration: Migration,
  deadline: number,
): Promise<void> {
  for (;;) {
    const before = await connection.query<Holder>(HOLDERS);
    try {
      return await connection.script(scriptOf(migration));
    } catch (error) {
      // lock_not_available
      if (codeOf(error) !== "55P03") throw error;

      await connection.script("ROLLBACK");
      if (performance.now() >= deadline) {
        const holders = inBoth(before, await connection.query<Holder>(HOLDERS));
        throw new DatabaseError(
          `its tables are locked by ${holders}: wait until that ends, and ${howToRun("migrate")}`,
          { cause: error },
        );
      }
    }

    await pause(LOCK_PAUSE_MS);
  }
}

/** A transaction of another session with a lock on a table of the schema. */
interface Holder {
  readonly pid: number;
  readonly transaction: string;
  readonly program: string | null;
}

/** Selects transactions with a lock in the schema. Any role sees those of all roles. */
const HOLDERS = `SELECT DISTINCT pid, virtualtransaction AS transaction,
    coalesce(nullif(application_name, ''), backend_type) AS program
  FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_activity USING (pid)
  WHERE granted AND pid <> pg_backend_pid() AND relation IN
    (SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace)
  ORDER BY pid`;

/** Names the transactions that held a lock before and after an attempt. A batch holds one for milliseconds. */
function inBoth(before: readonly Holder[], after: readonly Holder[]): string {
  const known = new Set(before.map(({ transaction }) => transaction));
  const names = after
    .filter(({ transaction }) => known.has(transaction))
    .map(({ pid, program }) => `pid ${pid} (${program ?? "unknown program"})`);
  return names.join(", ") || "another transaction";
}

const NO_CREATE =
  "the user may not create or alter tables: run plant-store migrate once, with the URL of a user who may";

/**
 * Returns the advice for a name that is taken. In the first migration another application has the name, and
 * the message of `PostgresFailure` advises a new schema. Later that advice would hide the stored plants.
 */
const nameTaken = (migration: Migration) =>
  migration === MIGRATIONS[0]
    ? undefined
    : `migration ${migration.tag} makes a table, a column or a type that exists already: rename that one, and migrate again`;

/** The reasons why a migration fails, by SQLSTATE, with what to do. */
const REFUSALS: Readonly<Record<string, (migration: Migration) => string | undefined>> = {
  // insufficient_privilege
  "42501": () => NO_CREATE,
  // duplicate_column, duplicate_object, duplicate_table
  "42701": nameTaken,
  "42710": nameTaken,
  "42P07": nameTaken,
  // not_null_violation
  "23502": ({ tag }) =>
    `migration ${tag} makes a column NOT NULL, but rows have no value for it: give the column a default, or fill it by an UPDATE before`,
};
