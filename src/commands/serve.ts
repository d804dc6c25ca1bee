import { startLogging } from "../telemetry/logging.ts";
import { ConfigError, PlantStoreError, reasonOf } from "../errors.ts";
import { readStaticTokens } from "../settings/secret_files.ts";
import { type Call, settingsHelp, type Subcommand } from "./command.ts";
import { adapterOf } from "../database/open_database.ts";
import { QuietFailure } from "./output.ts";
import { HttpServer } from "../server/http_server.ts";
import { shutdownBudget } from "../server/shutdown.ts";
import { withAbort } from "../async/deadline.ts";

/** `plant-store serve`: ends after a signal; fails if the storage failed, even during the stop. */
export const serve: Subcommand = {
  usage: "serve",
  description: "Serve the API (also what happens without a command)",
  flags: [["--host <address>"], ["--port <number>"], ["--database <url>"]],
  help: settingsHelp,
  example: "serve --port 8080 --database /var/lib/plant-store/plants.db",
  run,
};

async function run({ io, ...call }: Call): Promise<void> {
  const config = await call.config();
  const logFormat = config.logFormat ?? (io.isTerminal ? "pretty" : "json");
  const { hasColors: colors, stderr: write } = io;
  using logging = startLogging({ level: config.logLevel, format: logFormat, colors, write });
  const { log } = logging;
  const failure = new AbortController();
  const stop = AbortSignal.any([io.stop, failure.signal]);
  stop.addEventListener("abort", () => {
    if (failure.signal.aborted) log.error(`Stopping: ${reasonOf(stop.reason)}`, { cause: stop.reason.cause });
    else log.info("Stopping: finishing the requests in flight");
  });
  const server = new HttpServer(config);
  if (config.tls !== undefined) io.onHangup(() => void reloadCertificate());
  const staticTokens = await withAbort(readStaticTokens(config, log), stop);
  if (staticTokens === undefined) return;
  const adapter = await adapterOf(config.database);
  const opening = adapter.openForServing({
    closeTimeoutMs: shutdownBudget(config).closeMs,
    onWarning: (message, cause) => log.warning(message, { cause }),
    onInfo: (message, properties) => log.info(message, properties),
  });
  // Meanwhile the Worker starts and opens the file.
  const loading = import("../server/service.ts");
  // Opening may wait for a lock or a disk.
  const database = await withAbort(opening, stop);
  if (database === undefined) return;
  const onStorageFailure = (cause: Error) => {
    if (stop.aborted) log.error("The storage failed while stopping", { cause });
    failure.abort(new PlantStoreError("storage_unavailable", "the storage failed", { cause }));
  };
  void database.failed.then(onStorageFailure);
  try {
    await using _ = database;
    const { runService } = await loading;
    const settings = { ...config, logFormat, authTokens: staticTokens };
    await runService(settings, { adapter, database, server, logging, stop, terminal: io });
  } catch (error) {
    // Closing the database failed.
    if (!(stop.aborted && error instanceof PlantStoreError)) throw error;
    onStorageFailure(error);
  }
  if (failure.signal.aborted) throw new QuietFailure();

  /** Certificates are renewed every few weeks. If the new one cannot be used, the current one stays. */
  async function reloadCertificate(): Promise<void> {
    try {
      const expires = await server.reloadCertificate();
      if (expires !== undefined) log.info("Certificate reloaded", { expires: expires.toISOString() });
    } catch (error) {
      if (!(error instanceof ConfigError)) return failure.abort(error);
      log.error("Certificate reload failed; keeping the current one", { reason: reasonOf(error) });
    }
  }
}
