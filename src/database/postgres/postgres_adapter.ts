import { ConfigError } from "../../errors.ts";
import type { DatabaseAdapter, DatabaseKind, ServingOptions } from "../adapter.ts";
import type * as PostgresDatabase from "./postgres_database.ts";
import { describePostgresUrl, howToRun, parsePostgresUrl, type PostgresUrl } from "./url.ts";

const SCHEMES = ["postgres:", "postgresql:"];

/** PostgreSQL, on one primary. */
export const POSTGRES: DatabaseKind = {
  name: "PostgreSQL",
  urls: "postgres://…",
  schemes: SCHEMES,
  adapterOf: (url) =>
    SCHEMES.some((scheme) => url.startsWith(scheme))
      ? postgresAdapter(parsePostgresUrl(url))
      : undefined,
};

/** A database on a PostgreSQL server. Loads the client only when it is used. */
export function postgresAdapter(url: PostgresUrl): DatabaseAdapter {
  /** Connects, and uses what was reached. */
  async function onServer<Result>(
    use: (room: typeof PostgresDatabase, reached: PostgresDatabase.Reached) => Promise<Result>,
    readUrl?: ServingOptions["readUrl"],
  ): Promise<Result> {
    const room = await import("./postgres_database.ts");
    using reached = await room.reach(url, readUrl);
    return await use(room, reached);
  }

  const openForReading = (options?: Parameters<DatabaseAdapter["openPlants"]>[0]) =>
    onServer(({ openPostgres }, reached) => openPostgres(reached, { ...options, access: "read" }));

  return {
    name: url.database,
    describe: () => ({ adapter: "postgres", ...describePostgresUrl(url) }),
    howToRun,

    openForServing: (options) =>
      onServer(({ servePostgres }, reached) => servePostgres(reached, options), options.readUrl),
    openForWriting: ({ create = false, onCreate } = {}) =>
      onServer(({ openPostgres }, reached) =>
        openPostgres(reached, { access: create ? "create" : "write", onCreate }),
      ),
    openPlants: openForReading,
    openForListing: () => openForReading(),

    async check() {
      throw new ConfigError("Cannot check PostgreSQL: use pg_amcheck");
    },

    async backup() {
      throw new ConfigError("Cannot back up PostgreSQL: use pg_dump");
    },

    async restore() {
      throw new ConfigError("Cannot restore PostgreSQL: use pg_restore");
    },

    migrate: (options) =>
      onServer(({ migratePostgres }, reached) => migratePostgres(reached, options)),
    requireMigratable: () =>
      onServer(({ requireMigratable }, reached) => requireMigratable(reached)),
  };
}
