import { withAbort } from "../async/timers.ts";
import { CommandError } from "../errors.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { writeOutput } from "./terminal.ts";

const HELP = `
With NODE_ENV=production a server creates no database: run this once before its
first start. On PostgreSQL, connect as a role that may create tables.`;

/** `plant-store migrate`. */
export const migrate: Subcommand = {
  usage: "migrate",
  description: "Create the database, or upgrade its schema",
  flags: [["--dry-run", "Print the SQL, and change nothing"], ...DATABASE_FLAGS],
  help: () => HELP,
  example: "migrate --database /var/lib/plant-store/plants.db",
  async run({ flags, adapter, io }) {
    const dryRun = flags["dryRun"] === true;
    const database = await adapter();
    const onCreate = (created: string) => io.stderr(`Initialized empty database "${created}"\n`);
    const migrations = await withAbort(database.migrate({ dryRun, onCreate }), io.stop);
    if (migrations === undefined)
      throw new CommandError("Stopped: the schema may or may not be up to date");
    if (dryRun) await writeOutput(io, migrations.map(({ script }) => script).join(""));
    else migrations.forEach(({ tag }) => io.stderr(`Applied ${tag}\n`));
    if (migrations.length === 0) io.stderr("Nothing to do: the schema is up to date\n");
  },
};
