import { DatabaseError } from "../database.ts";
import type { Connection } from "./connection.ts";

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
