import { TOKENS_MAX_AGE_MS } from "../../auth/token_store.ts";
import { ConfigError } from "../../errors.ts";
import {
  type Access,
  type CreationOptions,
  type DatabaseAdapter,
  type ServingDatabase,
  type ServingOptions,
} from "../adapter.ts";
import type { Database } from "../database.ts";
import { MIGRATIONS, scriptOf } from "./migrations.ts";
import {
  MAX_IN_FLIGHT,
  migratePostgres,
  openPostgres,
  reach,
  type Reached,
  requireMigratable,
} from "./postgres_database.ts";
import type { PostgresUrl } from "./url.ts";

/** How a database that was reached is opened and migrated. An extension may have ways of its own. */
export interface Opener {
  /** Opens the plants and the tokens for a command. */
  open(reached: Reached, options: OpenOptions): Promise<Database>;
  /** As {@linkcode DatabaseAdapter.openForServing}. */
  openForServing(reached: Reached, options: ServingOptions): Promise<ServingDatabase>;
  /** As {@linkcode DatabaseAdapter.migrate}. */
  migrate(reached: Reached, dryRun: boolean): ReturnType<DatabaseAdapter["migrate"]>;
}

/** How a command opens it. */
export interface OpenOptions extends Pick<CreationOptions, "onCreate"> {
  readonly access: Access;
}

/** The ways of PostgreSQL itself. */
export const POSTGRES: Opener = {
  open: openPostgres,

  async openForServing(reached, { gather, create = false, onCreate, onWarning }) {
    const { plants, ...database } = await openPostgres(reached, {
      access: create ? "create" : "write",
      isServing: true,
      onCreate,
      onWarning,
    });
    return {
      ...database,
      plants: gather(plants, MAX_IN_FLIGHT),
      async ready() {
        await plants.probe();
        return [];
      },
      tokensMaxAgeMs: TOKENS_MAX_AGE_MS,
      // What PostgreSQL acknowledged is durable.
      failed: new Promise(() => {}),
    };
  },

  async migrate(reached, dryRun) {
    const migrations = await migratePostgres(reached, dryRun);
    return migrations.map((migration) => ({ tag: migration.tag, script: scriptOf(migration) }));
  },
};

/** Options of {@linkcode postgresAdapter}. */
export interface PostgresAdapterOptions {
  /** Reads the URL again for a running server. @default the URL stays the same */
  readonly readUrl?: (() => Promise<PostgresUrl>) | undefined;
  /**
   * Chooses how to open a database that has these extensions: if it resolves to nothing, as
   * PostgreSQL itself.
   *
   * @default nothing
   */
  readonly openerFor?: (extensions: readonly string[]) => Promise<Opener | undefined>;
}

/** Databases on a PostgreSQL server. */
export function postgresAdapter(
  url: PostgresUrl,
  { readUrl, openerFor = async () => undefined }: PostgresAdapterOptions = {},
): DatabaseAdapter {
  /** Connects, and opens what is there. */
  async function onServer<Result>(
    use: (opener: Opener, reached: Reached) => Promise<Result>,
  ): Promise<Result> {
    using reached = await reach(url, readUrl);
    const opener = await openerFor(reached.connection.extensions);
    return await use(opener ?? POSTGRES, reached);
  }

  return {
    name: url.database,
    howToRun: (command) => `run plant-store ${command} --database "$DATABASE_URL"`,

    openForServing: (options) =>
      onServer((opener, reached) => opener.openForServing(reached, options)),
    openForWriting: ({ create = false, onCreate } = {}) =>
      onServer((opener, reached) =>
        opener.open(reached, { access: create ? "create" : "write", onCreate }),
      ),
    openPlants: () => onServer((opener, reached) => opener.open(reached, { access: "read" })),
    openForListing: () => onServer((_, reached) => openPostgres(reached, { access: "read" })),

    async check() {
      throw new ConfigError("Cannot check PostgreSQL: use pg_amcheck");
    },

    async backup() {
      throw new ConfigError("Cannot back up PostgreSQL: use pg_dump");
    },

    async restore() {
      throw new ConfigError("Cannot restore PostgreSQL: use pg_restore");
    },

    async migrate({ dryRun, onCreate }) {
      const applied = await onServer((opener, reached) => opener.migrate(reached, dryRun));
      if (!dryRun && applied[0]?.tag === MIGRATIONS[0]?.tag) onCreate?.(url.database);
      return applied;
    },

    requireMigratable: () => onServer((_, reached) => requireMigratable(reached)),
  };
}
