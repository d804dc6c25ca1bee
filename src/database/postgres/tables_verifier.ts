import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";

/**
 * Verifies that the tables are in the current schema and survive a crash, which no statement would report. Also
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

  for (const { name, is_missing, unlogged } of tables) {
    if (is_missing) refuse(`the table ${name} is missing: restore it`);
    if (unlogged !== null)
      refuse(
        `${unlogged} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${unlogged} SET LOGGED`,
      );
  }

  const missing = tables.flatMap(({ missing_privileges }) => missing_privileges ?? []);
  if (missing.length > 0) refuse(`the user lacks ${missing.join(", ")}: GRANT it`);

  return tables[0]?.schema ?? "";
}

function refuse(problem: string): never {
  throw new PostgresFailure("UNSAFE", problem);
}

/** A row of {@linkcode TABLES}. */
interface Table {
  readonly name: string;
  /** The current schema, quoted as an identifier. */
  readonly schema: string;
  /** Also true if a view has the name. */
  readonly is_missing: boolean;
  /** The name of the table or of a partition, if that is UNLOGGED. */
  readonly unlogged: string | null;
  /** Privileges that a server needs and the role lacks. `FOR KEY SHARE` needs UPDATE. */
  readonly missing_privileges: string | null;
}

/** Selects a row for each table. Takes no lock, so it never waits. */
const TABLES = `SELECT name, quote_ident(current_schema()) AS schema, found.oid IS NULL AS is_missing,
    (SELECT min(part.relname) FROM pg_catalog.pg_class AS part WHERE part.relpersistence <> 'p'
      AND (part.oid = found.oid OR part.oid IN (SELECT relid FROM pg_partition_tree(found.oid)))) AS unlogged,
    (SELECT string_agg(privilege || ' on ' || name, ', ')
      FROM unnest(ARRAY['INSERT', 'SELECT', 'UPDATE']) AS privilege
      WHERE NOT has_table_privilege(found.oid, privilege)) AS missing_privileges
  FROM unnest(ARRAY['plants', 'probes', 'token_revision', 'tokens']) AS name
    LEFT JOIN pg_catalog.pg_class AS found ON found.relkind IN ('r', 'p')
      AND found.oid = to_regclass(format('%I.%I', current_schema(), name))
  ORDER BY name`;
