import { withAbort } from "../async/timers.ts";
import { DatabaseError } from "../database/database.ts";
import { CommandError, ConfigError } from "../errors.ts";
import { runService } from "../server/service.ts";
import { checkStart } from "../server/start_check.ts";
import { type Call, SETTINGS_FLAG, settingsHelp, type Subcommand } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** `plant-store serve`: ends after a signal; fails if the storage failed, even during the stop. */
export const serve: Subcommand = {
  usage: "serve",
  description: "Serve the API; the default without a command",
  flags: [
    ["--check", "Check whether a start would be refused, and exit with 0 or 2"],
    ["--host <address>"],
    ["--port <number>"],
    ["--database <url>"],
    SETTINGS_FLAG,
  ],
  help: settingsHelp,
  example: "serve --port 8080 --database /var/lib/plant-store/plants.db",
  run: async (call) =>
    call.flags["check"] === true ? checkOnly(call) : runService(await call.config(), call.io, call),
};

/** Runs `serve --check`. For scripts, every refusal is a usage error. */
async function checkOnly({ io, config, ignored }: Call): Promise<void> {
  const warn = (sentence: string) => io.stderr(`${sentence}\n`);
  ignored().forEach(warn);

  try {
    const result = await withAbort(checkStart(await config(), warn), io.stop);
    if (result === undefined) throw new CommandError("Stopped: the check is incomplete");
    await writeOutput(io, `${result}\n`);
  } catch (error) {
    const isRefusal = error instanceof DatabaseError || error instanceof CommandError;
    throw isRefusal ? new ConfigError(error.message, { cause: error }) : error;
  }
}
