import type { DatabaseAdapter, DatabaseKind } from "./adapter.ts";
import { citus } from "./citus/citus_adapter.ts";
import { postgres } from "./postgres/postgres_adapter.ts";
import { SQLITE, SQLITE_BACKUPS } from "./sqlite/sqlite_adapter.ts";

/** Every kind of database. Each loads its own modules when used. */
const DATABASES: readonly DatabaseKind[] = [
  SQLITE,
  postgres(SQLITE_BACKUPS),
  citus(SQLITE_BACKUPS),
];

/** The names of the databases, for messages. */
export const DATABASE_NAMES = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(
  DATABASES.map(({ name }) => name),
);

/** The forms of database URLs, for messages. */
export const DATABASE_URLS = DATABASES.map(({ urls }) => urls).join(" or ");

/** The schemes of database URLs. A path needs none. */
export const URL_SCHEMES: readonly string[] = DATABASES.flatMap(({ schemes }) => schemes);

/**
 * Returns the adapter for a URL: a path, or one of {@linkcode DATABASE_URLS}.
 *
 * @throws {RangeError} If the URL is invalid. The message quotes no secret from it.
 */
export function adapterOf(url: string): DatabaseAdapter {
  for (const kind of DATABASES) {
    const adapter = kind.adapterOf(url);
    if (adapter !== undefined) return adapter;
  }
  throw new RangeError(`expected ${DATABASE_URLS}`);
}
