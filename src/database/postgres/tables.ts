import { DatabaseError } from "../database.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";

/** What a verifier of tables is for. */
export interface TablesOptions {
  /** Whether plants are written: who only reads them needs less. */
  readonly writable: boolean;
  /** Called once, with what is no reason to refuse the tables. */
  readonly onWarning: (message: string) => void;
}

/**
 * Makes what compares the tables with those that the migrations made: an operator, a restore that was not finished or
 * another `search_path` may have given a connection other ones, which would lose or change plants without an error.
 * Every connection has to find them in the schema where the first one did.
 *
 * @throws {PostgresFailure} `UNSAFE`; the message says in one line what is wrong, and what to do.
 */
export function tablesVerifier({ writable, onWarning }: TablesOptions) {
  let schema: string | undefined;
  return async (connection: Pick<Connection, "query">): Promise<void> => {
    const tables = await connection.query<Table>(TABLES);
    const isFirst = schema === undefined;
    const expected = schema ?? tables[0]?.schema ?? "";
    // Plants are the first.
    for (const table of writable ? tables : tables.slice(0, 1)) {
      const problem = misplaced(table, expected) ?? (writable ? unsafe(table) : undefined);
      if (problem !== undefined) throw new PostgresFailure("UNSAFE", problem);
    }
    schema = expected;
    if (isFirst && tables[0] !== undefined) for (const warning of warningsOf(tables[0])) onWarning(warning);
  };
}

/** What may refuse a plant, and changes none. */
function warningsOf({ more_indexes, more_constraints }: Table): readonly string[] {
  const more = Object.entries({ Index: more_indexes, Constraint: more_constraints });
  return more.flatMap(([kind, names]) =>
    names === null ? [] : [`${kind} on plants that plant-store did not make: ${names}`],
  );
}

function misplaced({ name, is_root, schema, has_row_security }: Table, expected: string): string | undefined {
  if (schema === null) return `the table ${name} is missing: restore it`;
  if (is_root && schema !== expected) {
    return `search_path finds ${name} in schema "${schema}", not in "${expected}": set it to plant-store's schema`;
  }
  if (has_row_security) return `row level security hides rows of ${name}: disable it, or use a role with BYPASSRLS`;
  return undefined;
}

function unsafe(table: Table): string | undefined {
  const { name, relation, is_root, is_partition, kind, persistence } = table;
  if (!TABLE_KINDS.has(kind)) return `${relation} is not a table of this database: restore plant-store's`;
  if (!is_root && !is_partition) {
    return `${relation} inherits from ${name}, whose primary key does not cover it: move its rows into ${name}, and drop it`;
  }
  if (persistence !== "p") {
    return `${relation} is UNLOGGED, so a crash of PostgreSQL would empty it: ALTER TABLE ${relation} SET LOGGED`;
  }
  return unfit(table);
}

function unfit({ relation, other_types, refusing_columns, has_key, triggers, rules }: Table): string | undefined {
  if (other_types !== null) return `${other_types}: restore plant-store's type`;
  if (refusing_columns !== null) return `${refusing_columns}, which refuses plants: restore plant-store's columns`;
  if (!has_key) return `${relation} has no valid primary key on id: ALTER TABLE ${relation} ADD PRIMARY KEY (id)`;
  if (triggers !== null) return `${relation} has a trigger on INSERT, which may change plants: drop ${triggers}`;
  if (rules !== null) return `${relation} has a rule, which may change plants: drop ${rules}`;
  return undefined;
}

/** A table, and one with partitions. */
const TABLE_KINDS = new Set(["r", "p"]);

/** A table, or a partition of one, or what else inherits from it. */
interface Table {
  /** The table's name; and that of its partition. */
  readonly name: string;
  readonly relation: string;
  readonly is_root: boolean;
  readonly is_partition: boolean;
  /** Null where there is no such table, and so is the rest. */
  readonly schema: string | null;
  readonly kind: string;
  readonly persistence: string;
  readonly has_row_security: boolean;
  readonly other_types: string | null;
  readonly refusing_columns: string | null;
  readonly has_key: boolean;
  readonly more_indexes: string | null;
  readonly more_constraints: string | null;
  readonly triggers: string | null;
  readonly rules: string | null;
}

/** Whether `ON CONFLICT (id)` can rely on an index. */
const IS_KEY = `indisunique AND indisvalid AND indimmediate AND indpred IS NULL AND indnkeyatts = 1
  AND indkey[0] = (SELECT attnum FROM pg_catalog.pg_attribute WHERE attrelid = indrelid AND attname = 'id')`;

const PLANTS = "name = 'plants' AND member = root";

/** Why a column lets no plant be added, or none without a tag; else null. Defaults and identity are those of the root. */
const REFUSAL = `CASE
    WHEN attname IN ('id', 'name', 'tag') AND attgenerated <> '' THEN 'GENERATED'
    WHEN attname IN ('id', 'name', 'tag') AND attidentity = 'a' AND member = root THEN 'GENERATED ALWAYS AS IDENTITY'
    WHEN attname = 'tag' AND attnotnull THEN 'NOT NULL'
    WHEN attname NOT IN ('id', 'name', 'tag') AND NOT atthasdef AND attidentity = '' AND member = root
      AND (SELECT typdefault IS NULL AND (attnotnull OR typnotnull) FROM pg_catalog.pg_type WHERE pg_type.oid = atttypid)
    THEN 'NOT NULL without a default'
  END`;

/** One row for each table and partition, plants first. It takes no lock, and so waits for nobody. */
const TABLES = `WITH RECURSIVE members AS (
    SELECT name, to_regclass(name)::oid AS root, to_regclass(name)::oid AS member
    FROM unnest(ARRAY['plants', 'probes', 'token_revision', 'tokens']) AS name
    UNION SELECT name, root, inhrelid FROM members JOIN pg_catalog.pg_inherits ON inhparent = member)
  SELECT name, relname AS relation, member = root AS is_root, relispartition AS is_partition, nspname AS schema,
    relkind::text AS kind, relpersistence::text AS persistence,
    member = root AND row_security_active(member) AS has_row_security,
    (SELECT string_agg(format('%s.%s is %s, not %s', name, "column", coalesce(found, 'missing'), type), ', ')
      FROM (VALUES ('id', 'bigint'), ('name', 'text'), ('tag', 'text')) AS wanted ("column", type)
      LEFT JOIN (SELECT attname, format_type(atttypid, atttypmod) AS found FROM pg_catalog.pg_attribute
        WHERE attrelid = member AND NOT attisdropped) AS columns ON attname = "column"
      WHERE ${PLANTS} AND found IS DISTINCT FROM type) AS other_types,
    (SELECT string_agg(format('%s.%s is %s', relname, attname, ${REFUSAL}), ', ' ORDER BY attnum)
      FROM pg_catalog.pg_attribute WHERE name = 'plants' AND attrelid = member AND attnum > 0 AND NOT attisdropped
        AND ${REFUSAL} IS NOT NULL) AS refusing_columns,
    NOT (${PLANTS}) OR EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = member AND ${IS_KEY}) AS has_key,
    (SELECT string_agg(indexrelid::regclass::text, ', ') FROM pg_catalog.pg_index
      WHERE ${PLANTS} AND indrelid = member AND NOT (${IS_KEY})) AS more_indexes,
    (SELECT string_agg(DISTINCT quote_ident(conname), ', ') FROM pg_catalog.pg_constraint
      WHERE ${PLANTS} AND contype IN ('c', 'f') AND conrelid IN (SELECT other.member FROM members AS other WHERE other.name = 'plants')
    ) AS more_constraints,
    (SELECT string_agg(tgname, ', ') FROM pg_catalog.pg_trigger WHERE name = 'plants' AND tgrelid = member
      AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 4 <> 0) AS triggers,
    (SELECT string_agg(rulename, ', ') FROM pg_catalog.pg_rewrite
      WHERE name = 'plants' AND ev_class = member AND ev_enabled <> 'D') AS rules
  FROM members LEFT JOIN pg_catalog.pg_class ON pg_class.oid = member
    LEFT JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
  ORDER BY name, member <> root, relname`;

/** What a server does with its tables: it locks a row to read it, which is an UPDATE. */
const MISSING = `SELECT string_agg(privilege || ' on ' || name, ', ' ORDER BY name, privilege) AS missing
  FROM unnest(ARRAY['plants', 'probes', 'tokens', 'token_revision']) AS name,
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS privilege
  WHERE NOT has_table_privilege(name, privilege)`;

/**
 * Asks at the start for what would fail later, and then only sometimes: a plant that is new needs less than one that is
 * sent again.
 *
 * @throws {DatabaseError} If the role may not do all that a server does.
 */
export async function requirePrivileges(connection: Connection): Promise<void> {
  const [row] = await connection.query<{ missing: string | null }>(MISSING);
  const missing = row?.missing ?? null;
  if (missing !== null) throw new DatabaseError(`the user lacks ${missing}: GRANT it`);
}
