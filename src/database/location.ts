import type { DatabaseAdapter } from "./adapter.ts";
import { describePostgresUrl, parsePostgresUrl, type PostgresUrl } from "./postgres/url.ts";
import { sqlitePath } from "./sqlite/path.ts";
import { sqliteAdapter } from "./sqlite/sqlite_adapter.ts";

/** Where a database is, and which adapter it needs. */
export type DatabaseLocation =
  | { readonly adapter: "postgres"; readonly url: PostgresUrl }
  | { readonly adapter: "sqlite"; readonly path: string };

/** What the URL of a database may be, for messages. */
export const DATABASE_URLS = "file:PATH or postgres://…";

/** The schemes of these URLs. A path needs none. */
export const URL_SCHEMES: readonly string[] = ["file:", "postgres:", "postgresql:"];

/**
 * Parses a path, `file:PATH`, an absolute URL `file:///PATH` (RFC 8089), or another of
 * {@linkcode DATABASE_URLS}. White space around a path is ignored, as bun:sqlite does.
 *
 * @throws {RangeError} If it is none of them. The message quotes nothing of it.
 */
export function parseLocation(url: string): DatabaseLocation {
  if (/^postgres(?:ql)?:/.test(url)) {
    return { adapter: "postgres", url: parsePostgresUrl(url) };
  }

  const path = sqlitePath(url);
  if (path === undefined) throw new RangeError(`expected ${DATABASE_URLS}`);
  return { adapter: "sqlite", path };
}

/** What the log has of a location: no secret. */
export function describeLocation(location: DatabaseLocation): Record<string, unknown> {
  if (location.adapter === "postgres") {
    return { adapter: "postgres", ...describePostgresUrl(location.url) };
  }

  return { adapter: "sqlite", path: location.path };
}

/**
 * The adapter of a database. Only what it needs is loaded.
 * `readUrl` reads the URL of PostgreSQL again, whose password may be rotated.
 */
export async function adapterOf(
  location: DatabaseLocation,
  readUrl?: () => Promise<PostgresUrl>,
): Promise<DatabaseAdapter> {
  if (location.adapter === "postgres") {
    const { postgresAdapter } = await import("./postgres/postgres_adapter.ts");
    return postgresAdapter(location.url, {
      readUrl,
      async openerFor(extensions) {
        if (!extensions.includes("citus")) return undefined;
        return (await import("./citus/citus_adapter.ts")).CITUS;
      },
    });
  }

  return sqliteAdapter(location.path);
}
