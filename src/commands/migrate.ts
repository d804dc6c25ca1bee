import { withAbort } from "../async/timers.ts";
import { CommandError } from "../errors.ts";
import type { Subcommand } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** `plant-store migrate`. */
export const migrate: Subcommand = {
  usage: "migrate",
  description:
    "Bring a database on PostgreSQL to the newest schema, as a role that may create tables",
  flags: [
    ["--dry-run", "Print the SQL, and change nothing"],
    ["--database <url>", "The database, postgres://… [DATABASE_URL]"],
  ],
  example: "migrate --database postgres://owner@localhost/plants --dry-run",
  async run({ flags, adapter, io }) {
    const dryRun = flags["dryRun"] === true;
    const database = await adapter();
    const migrations = await withAbort(database.migrate({ dryRun }), io.stop);
    if (migrations === undefined)
      throw new CommandError("Stopped: the schema may or may not be up to date");
    if (dryRun) await writeOutput(io, migrations.map(({ script }) => script).join(""));
    else migrations.forEach(({ tag }) => io.stderr(`Applied ${tag}\n`));
    if (migrations.length === 0) io.stderr("Nothing to do: the schema is up to date\n");
  },
};
