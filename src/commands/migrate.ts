import type { Command } from "commander";
import { withAbort } from "../async/deadline.ts";
import { type Action, type Call, examples } from "./command.ts";
import { writeOutput } from "./output.ts";

/** Declares `plant-store migrate`. */
export function declareMigrate(program: Command, action: Action): void {
  program
    .command("migrate")
    .description("Bring a database on PostgreSQL to the newest schema, as a role that may create tables")
    .option("--dry-run", "Print the SQL, and change nothing")
    .option("--database <url>", "The database, postgres://… [DATABASE_URL]")
    .addHelpText("after", examples("migrate --database postgres://owner@localhost/plants --dry-run"))
    .action(action(migrate));
}

async function migrate({ flags, adapter, io }: Call): Promise<number> {
  const dryRun = flags["dryRun"] === true;
  const database = await adapter();
  const migrating = database.migrate({ dryRun, onWarning: (message) => io.stderr(`${message}\n`) });
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
