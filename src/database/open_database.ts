import type { DatabaseAdapter } from "./adapter.ts";
import type { PostgresUrl } from "./postgres/url.ts";
import { sqliteAdapter } from "./sqlite/adapter.ts";

/** Which adapter a database is behind, and where it is. */
export type DatabaseLocation = SqliteLocation | PostgresLocation;

/** A SQLite database in a file. */
export interface SqliteLocation {
  readonly adapter: "sqlite";
  readonly path: string;
}

/** A database on a PostgreSQL server. */
export interface PostgresLocation {
  readonly adapter: "postgres";
  readonly url: PostgresUrl;
}

/** The adapter of a database. That of PostgreSQL is loaded here: a start does not wait for what it does not use. */
export async function adapterOf(location: DatabaseLocation): Promise<DatabaseAdapter> {
  if (location.adapter === "sqlite") return sqliteAdapter(location.path);
  const { postgresAdapter } = await import("./postgres/database.ts");
  return postgresAdapter(location.url);
}
