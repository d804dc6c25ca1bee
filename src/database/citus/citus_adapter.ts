import { ConfigError } from "../../errors.ts";
import type {
  BackupFormat,
  DatabaseAdapter,
  DatabaseKind,
  ReadOptions,
  ServingOptions,
  Snapshot,
} from "../adapter.ts";
import { postgresAdapter } from "../postgres/postgres_adapter.ts";
import type { Reached } from "../postgres/postgres_database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../postgres/url.ts";
import type * as CitusDatabase from "./citus_database.ts";

const SCHEME = "citus:";

/** Returns the kind of database for Citus. Its URLs lead to the coordinator. Experimental. */
export function citus(backups: BackupFormat): DatabaseKind {
  return {
    name: "Citus",
    urls: "citus://…",
    schemes: [SCHEME],
    adapterOf: (url) =>
      url.startsWith(SCHEME) ? citusAdapter(parsePostgresUrl(url), backups) : undefined,
  };
}

/** Returns the adapter of a database on Citus. The schema is managed on the coordinator, as on PostgreSQL. */
function citusAdapter(url: PostgresUrl, backups: BackupFormat): DatabaseAdapter {
  const coordinator = postgresAdapter(url, backups);

  /** Connects to the coordinator, and calls `use` with the connection. */
  async function onCluster<Result>(
    use: (room: typeof CitusDatabase, reached: Reached) => Promise<Result>,
    readUrl?: ServingOptions["readUrl"],
  ): Promise<Result> {
    const { reach } = await import("../postgres/postgres_database.ts");
    using reached = await reach(url, readUrl);
    return await use(await import("./citus_database.ts"), reached);
  }

  const openForReading = (options?: Pick<ReadOptions, "onWarning">) =>
    onCluster(({ openCitus }, reached) => openCitus(reached, { ...options, access: "read" }));

  /** Opens all plants that are stored now, and perhaps some that are stored later: shards have no common snapshot. */
  async function openSnapshot({ onWarning }: ReadOptions): Promise<Snapshot> {
    const database = await openForReading({ onWarning });
    return { ...database, tokens: await database.tokens.list() };
  }

  return {
    ...coordinator,
    describe: () => ({ ...coordinator.describe(), adapter: "citus" }),

    openForServing: (options) =>
      onCluster(({ serveCitus }, reached) => serveCitus(reached, options), options.readUrl),
    openForWriting: ({ create = false, onCreate, onWarning } = {}) =>
      onCluster(({ openCitus }, reached) =>
        openCitus(reached, { access: create ? "create" : "write", onCreate, onWarning }),
      ),
    async openPlants(options) {
      const database = await openForReading(options);
      return { ...database, tokens: () => database.tokens.list() };
    },
    openForListing: () => openForReading(),

    async check() {
      throw new ConfigError("Cannot check Citus: use pg_amcheck on each server");
    },

    backup: (target, options) => backups.write(target, () => openSnapshot(options), options),

    async restore() {
      throw new ConfigError(
        "Cannot restore Citus: use plant-store import --tokens, or restore each server to one restore point",
      );
    },

    async migrate(options) {
      const { migrateCitus } = await import("./distribution.ts");
      return await onCluster((_, reached) => migrateCitus(reached, options));
    },
  };
}
