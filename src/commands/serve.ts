import type { Logger } from "@logtape/logtape";

import { withAbort, withDeadline } from "../async/deadline.ts";
import { adapterOf } from "../database/adapters.ts";
import type { Database } from "../database/database.ts";
import { ConfigError, PlantStoreError, reasonOf } from "../errors.ts";
import { HttpServer } from "../server/http_server.ts";
import { beginLifetime, type Lifetime } from "../server/shutdown.ts";
import { readPostgresUrl, readStaticTokens } from "../settings/secret_files.ts";
import { startLogging } from "../telemetry/logging.ts";
import { type Call, settingsHelp, type Subcommand } from "./command.ts";
import { QuietFailure } from "./process.ts";

/** `plant-store serve`: ends after a signal; fails if the storage failed, even during the stop. */
export const serve: Subcommand = {
  usage: "serve",
  description: "Serve the API; the default without a command",
  flags: [["--host <address>"], ["--port <number>"], ["--database <url>"]],
  help: settingsHelp,
  example: "serve --port 8080 --database /var/lib/plant-store/plants.db",
  run,
};

/**
 * Opens what a server needs, in an order that leaves nothing behind if the start is refused. Runs
 * the service, and closes the database in any case.
 */
async function run({ io, ...call }: Call): Promise<void> {
  const config = await call.config();
  const logFormat = config.logFormat ?? (io.isTerminal ? "pretty" : "json");
  const { hasColors: colors, log: output } = io;
  using logging = startLogging({ level: config.logLevel, format: logFormat, colors, output });
  const { log } = logging;

  const { shutdownTimeoutMs } = config;
  const lifetime = beginLifetime({ signal: io.stop, shutdownTimeoutMs, log });
  const { stop } = lifetime;

  const server = new HttpServer(config);
  if (config.tls !== undefined) io.onHangup(() => void reloadCertificate(server, lifetime, log));

  // Before the database: a start that is refused for one of these files makes none.
  const reading = Promise.all([readStaticTokens(config, log), server.loadCertificate()]);
  const [authTokens] = (await withAbort(reading, stop)) ?? [];
  if (authTokens === undefined) return log.info("Stopped");

  const { databaseUrlFile: urlFile } = config;
  const readUrl = urlFile === undefined ? undefined : () => readPostgresUrl(urlFile);
  const adapter = await adapterOf(config.database, readUrl);
  const opening = adapter.openForServing({
    onWarning: (message, cause) => log.warning(message, { cause }),
    onInfo: (message, properties) => log.info(message, properties),
  });
  // Meanwhile the Worker starts and opens the file.
  const loading = import("../server/service.ts");

  // Opening may wait for a lock or a disk.
  const database = await withAbort(opening, stop);
  if (database === undefined) return log.info("Stopped");

  const failStorage = (cause: Error) =>
    lifetime.fail(new PlantStoreError("storage_unavailable", "the storage failed", { cause }));
  void database.failed.then(failStorage);

  try {
    await using _ = closedAtEnd(database, lifetime, log);
    const { runService } = await loading;
    const settings = { ...config, logFormat, authTokens };
    await runService(settings, { adapter, database, server, logging, lifetime, terminal: io });
  } catch (error) {
    // Closing the database failed.
    if (!(stop.aborted && error instanceof PlantStoreError)) throw error;
    failStorage(error);
  }

  log.info("Stopped");
  if (lifetime.failure !== undefined) throw new QuietFailure();
}

/**
 * Closes a database at the end of the scope. A disk that hangs does not keep the process from
 * ending.
 */
function closedAtEnd(database: Database, lifetime: Lifetime, log: Logger): AsyncDisposable {
  // Nothing is lost: acknowledged plants are on the disk, and the next start reads the WAL.
  const notClosed = () => log.warning("Database not closed: the disk does not respond");

  return {
    async [Symbol.asyncDispose]() {
      const closing = database[Symbol.asyncDispose]() as Promise<void>;
      await withDeadline(closing, lifetime.timeoutMs("database"), notClosed);
    },
  };
}

/**
 * Certificates are renewed every few weeks. If the new one cannot be used, the current one stays.
 */
async function reloadCertificate(
  server: HttpServer,
  lifetime: Lifetime,
  log: Logger,
): Promise<void> {
  try {
    const expires = await server.reloadCertificate();
    if (expires !== undefined) log.info("Certificate reloaded", { expires: expires.toISOString() });
  } catch (error) {
    if (!(error instanceof ConfigError)) return lifetime.fail(error as Error);
    log.error("Certificate reload failed; keeping the current one", { reason: reasonOf(error) });
  }
}
