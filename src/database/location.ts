import type { DatabaseAdapter } from "./adapter.ts";
import type { PostgresUrl } from "./postgres/url.ts";
import { sqliteAdapter } from "./sqlite/sqlite_adapter.ts";

/** Where a database is, and which adapter it needs. */
export type DatabaseLocation =
  | { readonly adapter: "sqlite"; readonly path: string }
  | { readonly adapter: "postgres"; readonly url: PostgresUrl };

/**
 * The adapter of a database. That of PostgreSQL is loaded only if it is used, and that of Citus only
 * if the server has the extension.
 *
 * @param readUrl Reads the URL of a database on PostgreSQL again, whose password may be rotated.
 *   @default the URL stays the same
 */
export async function adapterOf(
  location: DatabaseLocation,
  readUrl?: () => Promise<PostgresUrl>,
): Promise<DatabaseAdapter> {
  if (location.adapter === "sqlite") return sqliteAdapter(location.path);

  const { postgresAdapter } = await import("./postgres/postgres_adapter.ts");
  return postgresAdapter(location.url, {
    readUrl,
    async openerFor(extensions) {
      if (!extensions.includes("citus")) return undefined;
      return (await import("./citus/citus_adapter.ts")).CITUS;
    },
  });
}
