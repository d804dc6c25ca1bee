import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { type Io } from "./output.ts";
import { writeOutput } from "./output.ts";
import { withAbort } from "../async/abort.ts";

/** How to migrate. */
export interface MigrateOptions {
  /** Whether to print the SQL, and to change nothing. */
  readonly dryRun: boolean;
}

/**
 * `plant-store migrate`: brings a database on PostgreSQL to the newest schema, as a role that may create tables: then
 * servers need one that may not.
 *
 * @returns 0, or 1 when it was stopped.
 * @throws {ConfigError} If the database is a file, which the commands that write to it migrate.
 * @throws {DatabaseError} If the database cannot be used, or the role may not create tables.
 */
export async function migrate(database: DatabaseLocation, { dryRun }: MigrateOptions, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  const migrating = adapter.migrate({ dryRun, onWarning: (message) => io.stderr(`${message}\n`) });
  const migrations = await withAbort(migrating, io.stop);
  if (migrations === undefined) {
    io.stderr("Stopped: the schema may or may not be up to date\n");
    return 1;
  }
  if (dryRun) await writeOutput(io, migrations.map(({ script }) => script).join(""));
  else migrations.forEach(({ tag }) => io.stderr(`Applied ${tag}\n`));
  if (migrations.length === 0) io.stderr("Nothing to do: the schema is up to date\n");
  return 0;
}
