import type { Command } from "commander";
import { withAbort } from "../async/deadline.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { type Io, writeOutput } from "./output.ts";

/** Declares `plant-store migrate`. */
export function declareMigrate(program: Command, { io, action }: CommandContext): void {
  const command = program
    .command("migrate")
    .description("Bring a database on PostgreSQL to the newest schema, as a role that may create tables")
    .option("--dry-run", "Print the SQL, and change nothing")
    .addHelpText("after", examples("migrate --database postgres://owner@localhost/plants --dry-run"))
    .action(
      action(async ({ flags, config }) => migrate((await config()).database, { dryRun: flags["dryRun"] === true }, io)),
    );
  addDatabaseFlag(command, "The database, postgres://…");
}

/**
 * Brings a database on PostgreSQL to the newest schema, as a role that may create tables. The role of servers need not.
 *
 * @param options With `dryRun` it prints the SQL, and changes nothing.
 * @returns 0, or 1 if it was stopped.
 * @throws {ConfigError} If the database is a file: every command that writes to it migrates it.
 * @throws {DatabaseError} If the database cannot be used, or the role may not create tables.
 */
export async function migrate(database: DatabaseLocation, { dryRun }: { dryRun: boolean }, io: Io): Promise<number> {
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
