import { getTableColumns } from "drizzle-orm";

import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";
import { plants } from "./schema.ts";

/**
 * Creates a verifier, which verifies each server once.
 *
 * @param writable Whether plants are written: reading needs less of the tables.
 * @param onWarning Called once, with additions to the tables that are allowed, but may affect
 *   plants.
 */
export function tablesVerifier(writable: boolean, onWarning: (message: string) => void) {
  const verified = new Set<unknown>();
  let schema: string | undefined;
  return {
    /** The `search_path` of every later session: the schema of the tables that were verified first. */
    searchPath: () => schema,
    /**
     * Compares the tables of a server with the migrations, on the first connection to it. An
     * unfinished restore or an operator may have left tables that would lose or change plants
     * without an error. The lack of a privilege would show later, and only sometimes: a new plant
     * needs fewer than a retry.
     *
     * @throws {PostgresFailure} `UNSAFE`. The message says in one line what is wrong, and what to
     *   do.
     */
    async verify({ query, host }: Connection): Promise<void> {
      if (verified.has(host)) return;
      const tables = await query<Table>(TABLES);
      const expected = schema ?? tables[0]?.schema ?? "";
      // Reading needs `plants`, the first, only.
      for (const table of writable ? tables : tables.slice(0, 1)) {
        const problem = misplaced(table, expected) ?? (writable ? unsafe(table) : undefined);
        if (problem !== undefined) throw new PostgresFailure("UNSAFE", problem);
      }
      const missing = tables
        .flatMap(({ missing_privileges }) => missing_privileges ?? [])
        .join(", ");
      if (writable && missing !== "")
        throw new PostgresFailure("UNSAFE", `the user lacks ${missing}: GRANT it`);
      const extras = tables[0]?.extras ?? null;
      if (schema === undefined && extras !== null) {
        onWarning(`Not created by plant-store, and may reject or change plants: ${extras}`);
      }
      verified.add(host);
      schema = expected;
    },
  };
}

function misplaced({ name, schema }: Table, expected: string): string | undefined {
  if (schema === null) return `the table ${name} is missing: restore it`;
  if (schema === expected) return undefined;
  return `search_path finds ${name} in schema ${schema}, not in ${expected}: set it to plant-store's schema`;
}

function unsafe({ name, is_table, unlogged, other_types, has_key }: Table): string | undefined {
  if (!is_table) return `${name} is not a table of this database: restore plant-store's`;
  if (unlogged !== null) {
    return `${unlogged} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${unlogged} SET LOGGED`;
  }
  if (other_types !== null) return `${other_types}: restore plant-store's type`;
  return has_key
    ? undefined
    : `${name} has no valid primary key on id: ALTER TABLE ${name} ADD PRIMARY KEY (id)`;
}

/** A table of the migrations, as found. */
interface Table {
  readonly name: string;
  /** As an identifier. Null if the table is missing, and so is the rest. */
  readonly schema: string | null;
  readonly is_table: boolean;
  /** The table or one of its partitions, if it is UNLOGGED. */
  readonly unlogged: string | null;
  readonly other_types: string | null;
  readonly has_key: boolean;
  /** Privileges that a server needs, and the role lacks. Locking a row to read it needs UPDATE. */
  readonly missing_privileges: string | null;
  /** Indexes, constraints, triggers and rules of `plants` that are not from the migrations. */
  readonly extras: string | null;
}

/** Whether `ON CONFLICT (id)` can use an index. */
const IS_KEY = `indisunique AND indisvalid AND indimmediate AND indpred IS NULL AND indnkeyatts = 1
  AND indkey[0] = (SELECT attnum FROM pg_catalog.pg_attribute WHERE attrelid = indrelid AND attname = 'id')`;

/** The columns of `plants` with their types. */
const COLUMNS = Object.values(getTableColumns(plants))
  .map((column) => `('${column.name}', '${column.getSQLType()}')`)
  .join(", ");

/** One row for each table, `plants` first. It takes no lock, so it never waits. */
const TABLES = `WITH RECURSIVE members AS (
    SELECT name, to_regclass(name)::oid AS root, to_regclass(name)::oid AS member
    FROM unnest(ARRAY['plants', 'probes', 'token_revision', 'tokens']) AS name
    UNION SELECT name, root, inhrelid FROM members JOIN pg_catalog.pg_inherits ON inhparent = member),
  extras (relation, kind, extra) AS (
    SELECT indrelid, 'index', indexrelid::regclass::text FROM pg_catalog.pg_index WHERE NOT (${IS_KEY})
    UNION ALL SELECT conrelid, 'constraint', quote_ident(conname) FROM pg_catalog.pg_constraint WHERE contype IN ('c', 'f')
    UNION ALL SELECT tgrelid, 'trigger', quote_ident(tgname) FROM pg_catalog.pg_trigger
      WHERE NOT tgisinternal AND tgenabled <> 'D'
    UNION ALL SELECT ev_class, 'rule', quote_ident(rulename) FROM pg_catalog.pg_rewrite WHERE ev_enabled <> 'D')
  SELECT name, quote_ident(nspname) AS schema, relkind IN ('r', 'p') AS is_table,
    (SELECT min(other.relname) FROM members JOIN pg_catalog.pg_class AS other ON other.oid = member
      WHERE root = pg_class.oid AND other.relpersistence <> 'p') AS unlogged,
    (SELECT string_agg(format('%s.%s is %s, not %s', name, "column", coalesce(found, 'missing'), type), ', ')
      FROM (VALUES ${COLUMNS}) AS wanted ("column", type)
      LEFT JOIN (SELECT attname, format_type(atttypid, atttypmod) AS found FROM pg_catalog.pg_attribute
        WHERE attrelid = member AND NOT attisdropped) AS columns ON attname = "column"
      WHERE name = 'plants' AND found IS DISTINCT FROM type) AS other_types,
    name <> 'plants' OR EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = member AND ${IS_KEY}) AS has_key,
    (SELECT string_agg(privilege || ' on ' || name, ', ') FROM unnest(ARRAY['INSERT', 'SELECT', 'UPDATE']) AS privilege
      WHERE NOT has_table_privilege(member, privilege)) AS missing_privileges,
    (SELECT string_agg(DISTINCT kind || ' ' || extra, ', ') FROM extras JOIN members AS plants ON relation = plants.member
      WHERE pg_class.relkind IN ('r', 'p') AND plants.root = pg_class.oid AND plants.name = 'plants'
        -- Each partition has its own part of an index.
        AND (kind <> 'index' OR plants.member = plants.root)) AS extras
  FROM members LEFT JOIN pg_catalog.pg_class ON pg_class.oid = member
    LEFT JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
  WHERE member IS NULL OR member = root
  ORDER BY name <> 'plants', name`;
