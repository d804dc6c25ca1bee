import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";

/**
 * Verifies that the tables are in one schema and survive a crash, which no statement would report. Also
 * verifies the privileges: a missing one would show late, because a new plant needs fewer than a retry.
 *
 * Nothing else needs a check. After any other change by an operator, a statement fails, or the comparison of
 * each row with the sent plant does. Only a trigger that runs later can change an acknowledged plant.
 *
 * @returns The schema, quoted as an identifier.
 * @throws {PostgresFailure} `UNSAFE`. The message says in one line what is wrong, and what to do.
 */
export async function verifyTables({ query }: Connection): Promise<string> {
  const tables = await query<Table>(TABLES);
  const schema = tables[0]?.schema ?? "";

  for (const table of tables) {
    const problem = misplaced(table, schema) ?? unlogged(table);
    if (problem !== undefined) throw new PostgresFailure("UNSAFE", problem);
  }

  const missing = tables.flatMap(({ missing_privileges }) => missing_privileges ?? []);
  if (missing.length > 0)
    throw new PostgresFailure("UNSAFE", `the user lacks ${missing.join(", ")}: GRANT it`);

  return schema;
}

function misplaced({ name, schema }: Table, expected: string): string | undefined {
  if (schema === null) return `the table ${name} is missing: restore it`;
  if (schema === expected) return undefined;
  return `search_path finds ${name} in schema ${schema}, not in ${expected}: set it to plant-store's schema`;
}

function unlogged({ unlogged: name }: Table): string | undefined {
  if (name === null) return undefined;
  return `${name} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${name} SET LOGGED`;
}

/** A row of {@linkcode TABLES}. */
interface Table {
  readonly name: string;
  /** Quoted as an identifier. Null if the table is missing or is a view. */
  readonly schema: string | null;
  /** The name of the table or of a partition, if that is UNLOGGED. */
  readonly unlogged: string | null;
  /** Privileges that a server needs and the role lacks. `FOR KEY SHARE` needs UPDATE. */
  readonly missing_privileges: string | null;
}

/** Selects a row for each table. Takes no lock, so it never waits. */
const TABLES = `SELECT name, quote_ident(nspname) AS schema,
    (SELECT min(part.relname) FROM pg_catalog.pg_class AS part WHERE part.relpersistence <> 'p'
      AND (part.oid = found.oid OR part.oid IN (SELECT relid FROM pg_partition_tree(found.oid)))) AS unlogged,
    (SELECT string_agg(privilege || ' on ' || name, ', ')
      FROM unnest(ARRAY['INSERT', 'SELECT', 'UPDATE']) AS privilege
      WHERE NOT has_table_privilege(found.oid, privilege)) AS missing_privileges
  FROM unnest(ARRAY['plants', 'probes', 'token_revision', 'tokens']) AS name
    LEFT JOIN pg_catalog.pg_class AS found ON found.oid = to_regclass(name) AND found.relkind IN ('r', 'p')
    LEFT JOIN pg_catalog.pg_namespace ON pg_namespace.oid = found.relnamespace
  ORDER BY name`;
