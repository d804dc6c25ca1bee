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

/** Citus, by the URL of its coordinator, and the format of its backups. Experimental. */
export function citus(backups: BackupFormat): DatabaseKind {
  return {
    name: "Citus",
    urls: "citus://…",
    schemes: [SCHEME],
    adapterOf: (url) =>
      url.startsWith(SCHEME) ? citusAdapter(parsePostgresUrl(url), backups) : undefined,
  };
}

/** A database on a Citus cluster. Its schema is the coordinator's, as on PostgreSQL. */
function citusAdapter(url: PostgresUrl, backups: BackupFormat): DatabaseAdapter {
  const coordinator = postgresAdapter(url, backups);

  /** Connects to the coordinator, and uses what was reached. */
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

  /** Reads each shard by itself: every plant that is stored now, and perhaps some that come later. */
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
      return {
        ...database,
        async *tokenPages() {
          yield await database.tokens.list();
        },
      };
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
