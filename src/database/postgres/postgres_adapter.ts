import { ConfigError } from "../../errors.ts";
import type { DatabaseAdapter } from "../adapter.ts";
import { scriptOf } from "./migrations.ts";
import { MAX_IN_FLIGHT, migratePostgres, openPostgres } from "./postgres_database.ts";
import type { PostgresUrl } from "./url.ts";

/**
 * Databases on a PostgreSQL server.
 *
 * @param readUrl Reads the URL again for a running server. @default the URL stays the same
 */
export function postgresAdapter(
  url: PostgresUrl,
  readUrl?: () => Promise<PostgresUrl>,
): DatabaseAdapter {
  const openForReading = () => openPostgres(url, { access: "read" });

  return {
    name: url.database,
    flag: '--database "$DATABASE_URL"',
    maxInFlight: MAX_IN_FLIGHT,

    openForServing: () => openPostgres(url, { isServing: true, readUrl }),
    openForWriting: ({ create = false } = {}) =>
      openPostgres(url, { access: create ? "create" : "write" }),
    openPlants: openForReading,
    openForListing: openForReading,

    async check() {
      throw new ConfigError("Cannot check PostgreSQL: use pg_amcheck");
    },

    async backup() {
      throw new ConfigError("Cannot back up PostgreSQL: use pg_dump");
    },

    async restore() {
      throw new ConfigError("Cannot restore PostgreSQL: use pg_restore");
    },

    async migrate({ dryRun }) {
      const migrations = await migratePostgres(url, dryRun);
      return migrations.map((migration) => ({ tag: migration.tag, script: scriptOf(migration) }));
    },
  };
}
