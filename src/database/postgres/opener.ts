import { TOKENS_MAX_AGE_MS } from "../../auth/token_store.ts";
import type {
  Access,
  CreationOptions,
  DatabaseAdapter,
  ServingDatabase,
  ServingOptions,
} from "../adapter.ts";
import type { Database } from "../database.ts";
import { scriptOf } from "./migrations.ts";
import { MAX_IN_FLIGHT, migratePostgres, openPostgres, type Reached } from "./postgres_database.ts";

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
