import type { DatabaseAdapter, DatabaseKind } from "./adapter.ts";
import { citus } from "./citus/citus_adapter.ts";
import { postgres } from "./postgres/postgres_adapter.ts";
import { SQLITE, SQLITE_BACKUPS } from "./sqlite/sqlite_adapter.ts";

/** Every kind of database. What only one of them needs is loaded when it is used. */
const DATABASES: readonly DatabaseKind[] = [
  SQLITE,
  postgres(SQLITE_BACKUPS),
  citus(SQLITE_BACKUPS),
];

/** Their names, for messages. */
export const DATABASE_NAMES = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(
  DATABASES.map(({ name }) => name),
);

/** What the URL of a database may be, for messages. */
export const DATABASE_URLS = DATABASES.map(({ urls }) => urls).join(" or ");

/** The schemes of these URLs. A path needs none. */
export const URL_SCHEMES: readonly string[] = DATABASES.flatMap(({ schemes }) => schemes);

/**
 * The adapter of the database with this URL: a path, or one of {@linkcode DATABASE_URLS}.
 *
 * @throws {RangeError} If it is none of them. The message quotes nothing of it.
 */
export function adapterOf(url: string): DatabaseAdapter {
  for (const kind of DATABASES) {
    const adapter = kind.adapterOf(url);
    if (adapter !== undefined) return adapter;
  }
  throw new RangeError(`expected ${DATABASE_URLS}`);
}
