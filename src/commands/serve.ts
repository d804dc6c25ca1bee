import { runService } from "../server/service.ts";
import { settingsHelp, type Subcommand } from "./command.ts";

/** `plant-store serve`: ends after a signal; fails if the storage failed, even during the stop. */
export const serve: Subcommand = {
  usage: "serve",
  description: "Serve the API; the default without a command",
  flags: [["--host <address>"], ["--port <number>"], ["--database <url>"]],
  help: settingsHelp,
  example: "serve --port 8080 --database /var/lib/plant-store/plants.db",
  run: async ({ io, config }) => runService(await config(), io),
};
