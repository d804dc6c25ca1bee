import { ConfigError } from "../../errors.ts";
import type { DatabaseAdapter, DatabaseKind, ServingOptions } from "../adapter.ts";
import type { Opener } from "./opener.ts";
import type { Reached } from "./postgres_database.ts";
import { describePostgresUrl, howToRun, parsePostgresUrl, type PostgresUrl } from "./url.ts";

/** How databases with an extension are opened, by the name of the extension. */
export type ExtensionOpeners = Readonly<Record<string, () => Promise<Opener>>>;

const URLS = "postgres://…";
const SCHEMES = ["postgres:", "postgresql:"];

/** PostgreSQL, and those of its extensions that have ways of their own. */
export function postgres(extensions: ExtensionOpeners): DatabaseKind {
  return {
    name: "PostgreSQL",
    urls: URLS,
    schemes: SCHEMES,
    adapterOf: (url) =>
      isPostgresUrl(url) ? postgresAdapter(parsePostgresUrl(url), extensions) : undefined,
  };
}

function isPostgresUrl(url: string): boolean {
  return SCHEMES.some((scheme) => url.startsWith(scheme));
}

/** Databases on a PostgreSQL server. Loads the client only when it is used. */
export function postgresAdapter(
  url: PostgresUrl,
  extensions: ExtensionOpeners = {},
): DatabaseAdapter {
  /** Connects, and opens what is there. */
  async function onServer<Result>(
    use: (opener: Opener, reached: Reached) => Promise<Result>,
    readUrl?: () => Promise<PostgresUrl>,
  ): Promise<Result> {
    const { reach } = await import("./postgres_database.ts");
    using reached = await reach(url, readUrl);
    return await use(await openerOf(reached), reached);
  }

  async function openerOf({ connection }: Reached): Promise<Opener> {
    const [, load] =
      Object.entries(extensions).find(([name]) => connection.extensions.includes(name)) ?? [];
    return (await load?.()) ?? (await import("./opener.ts")).POSTGRES;
  }

  return {
    name: url.database,
    describe: () => ({ adapter: "postgres", ...describePostgresUrl(url) }),
    howToRun,

    openForServing: (options) =>
      onServer((opener, reached) => opener.openForServing(reached, options), readerOf(options)),
    openForWriting: ({ create = false, onCreate } = {}) =>
      onServer((opener, reached) =>
        opener.open(reached, { access: create ? "create" : "write", onCreate }),
      ),
    openPlants: () => onServer((opener, reached) => opener.open(reached, { access: "read" })),

    async openForListing() {
      const { openPostgres } = await import("./postgres_database.ts");
      return await onServer((_, reached) => openPostgres(reached, { access: "read" }));
    },

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
      const { MIGRATIONS } = await import("./migrations.ts");
      const applied = await onServer((opener, reached) => opener.migrate(reached, dryRun));
      if (!dryRun && applied[0]?.tag === MIGRATIONS[0]?.tag) onCreate?.(url.database);
      return applied;
    },

    async requireMigratable() {
      const { requireMigratable } = await import("./postgres_database.ts");
      await onServer((_, reached) => requireMigratable(reached));
    },
  };
}

/** Reads and parses the URL again. */
function readerOf({ readUrl }: ServingOptions): (() => Promise<PostgresUrl>) | undefined {
  if (readUrl === undefined) return undefined;

  return async () => {
    const url = await readUrl();
    if (isPostgresUrl(url)) return parsePostgresUrl(url);
    throw new ConfigError(`Cannot use DATABASE_URL_FILE: expected ${URLS}`);
  };
}
