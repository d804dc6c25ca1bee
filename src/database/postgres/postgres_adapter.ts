import { statSync } from "node:fs";

import { withAbort } from "../../async/timers.ts";
import { ConfigError } from "../../errors.ts";
import type {
  BackupFormat,
  DatabaseAdapter,
  DatabaseKind,
  ReadOptions,
  ServingOptions,
} from "../adapter.ts";
import type * as PostgresDatabase from "./postgres_database.ts";
import { describePostgresUrl, howToRun, parsePostgresUrl, type PostgresUrl } from "./url.ts";

const SCHEMES = ["postgres:", "postgresql:"];

/** Returns the kind of database for PostgreSQL with one primary. `backups` is the format of its backups. */
export function postgres(backups: BackupFormat): DatabaseKind {
  return {
    name: "PostgreSQL",
    urls: "postgres://…",
    schemes: SCHEMES,
    adapterOf: (url) =>
      SCHEMES.some((scheme) => url.startsWith(scheme))
        ? postgresAdapter(parsePostgresUrl(url), backups)
        : undefined,
  };
}

/** Returns the adapter of a database on PostgreSQL. Loads the client only when needed. */
export function postgresAdapter(url: PostgresUrl, backups: BackupFormat): DatabaseAdapter {
  /** Connects, and calls `use` with the connection. */
  async function onServer<Result>(
    use: (room: typeof PostgresDatabase, reached: PostgresDatabase.Reached) => Promise<Result>,
    readUrl?: ServingOptions["readUrl"],
  ): Promise<Result> {
    const room = await import("./postgres_database.ts");
    using reached = await room.reach(url, readUrl);
    return await use(room, reached);
  }

  const openForReading = (options?: Pick<ReadOptions, "onWarning">) =>
    onServer(({ openPostgres }, reached) => openPostgres(reached, { ...options, access: "read" }));

  return {
    name: url.database,
    describe: () => ({ adapter: "postgres", ...describePostgresUrl(url) }),
    howToRun,

    placeFault: async () => undefined,
    openForServing: (options) =>
      onServer(({ servePostgres }, reached) => servePostgres(reached, options), options.readUrl),
    openForWriting: ({ create = false, onCreate, onWarning } = {}) =>
      onServer(({ openPostgres }, reached) =>
        openPostgres(reached, { access: create ? "create" : "write", onCreate, onWarning }),
      ),
    async openPlants(options) {
      const database = await openForReading(options);
      return { ...database, tokens: () => database.tokens.list() };
    },
    openForListing: () => openForReading(),

    async check() {
      throw new ConfigError("Cannot check PostgreSQL: use pg_amcheck");
    },

    async backup(target, options) {
      const { openSnapshot } = await import("./backup.ts");
      return await backups.write(target, () => openSnapshot(url, options), options);
    },

    restore: (source, options) =>
      onServer(async (_, reached) => {
        const { prepareRestore, restoreSnapshot } = await import("./backup.ts");
        // Preparing may wait for a standby.
        await withAbort(prepareRestore(reached), options.stop);
        if (options.stop.aborted) return undefined;
        await using snapshot = await backups.open(source, options);
        if (snapshot === undefined) return undefined;

        const { size: bytes } = statSync(source);
        const restored = await restoreSnapshot(reached, snapshot, options);
        return restored && { ...restored, bytes, replaced: undefined, howToAddOthers: undefined };
      }),

    migrate: (options) =>
      onServer(({ migratePostgres }, reached) => migratePostgres(reached, options)),
    requireMigratable: () =>
      onServer(({ requireMigratable }, reached) => requireMigratable(reached)),
  };
}
