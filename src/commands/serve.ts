import { startLogging } from "../telemetry/logging.ts";
import { PlantStoreError } from "../errors.ts";
import type { Config } from "../settings/config.ts";
import type { StreamIo } from "../server/io.ts";
import { adapterOf } from "../database/open_database.ts";
import { shutdownBudget } from "../server/shutdown.ts";
import { readStaticTokens } from "../settings/read_static_tokens.ts";
import { withAbort } from "../async/abort.ts";

/**
 * `plant-store serve`: serves until `io.stop`, then responds to what was accepted and closes the database.
 *
 * @returns 0 after a stop that was asked for, 1 when the storage failed, also during the stop.
 */
export async function serve(config: Config, io: StreamIo): Promise<number> {
  // Until the server listens it has no certificate to change, and SIGHUP must not stop it.
  if (config.tls !== undefined) io.onHangup(() => {});
  using logging = startLogging({
    level: config.logLevel,
    format: config.logFormat ?? (io.isTerminal ? "pretty" : "json"),
    write: io.stderr,
  });
  const { log } = logging;
  const staticTokens = await withAbort(readStaticTokens(config, log), io.stop);
  if (staticTokens === undefined) return 0;
  const { openForServing } = await adapterOf(config.database);
  const opening = openForServing({
    closeTimeoutMs: shutdownBudget(config).closeMs,
    onWarning: (message, cause) => log.warning(message, { cause }),
    onInfo: (message, properties) => log.info(message, properties),
  });
  // The Worker starts and opens the file in the meantime.
  const loading = import("../server/service.ts");
  // It can wait for a lock, or a disk, and a signal may stop it: nothing is lost.
  const opened = await withAbort(opening, io.stop);
  if (opened === undefined) return 0;
  await using resources = new AsyncDisposableStack();
  const database = resources.use(opened);
  const { startService } = await loading;
  const service = await startService({ ...config, authTokens: staticTokens }, database, logging, io);
  if (service === undefined) return 0;
  const failure = await withAbort(database.failed, io.stop);
  if (failure === undefined) log.info("Stopping: responding to what was accepted");
  else log.error("Stopping: the storage failed", { cause: failure });
  await service.stop(failure !== undefined);
  const failedSince = await close(resources.move(), database.failed);
  if (failure === undefined && failedSince !== undefined) {
    log.error("The storage failed while stopping", { cause: failedSince });
  }
  return failure === undefined && failedSince === undefined ? 0 : 1;
}

/** Closes the database, and resolves to what has failed by then, without waiting for a failure. */
async function close(resources: AsyncDisposableStack, failed: Promise<Error>): Promise<Error | undefined> {
  try {
    await resources.disposeAsync();
  } catch (error) {
    if (error instanceof PlantStoreError) return error;
    throw error;
  }
  return await Promise.race([failed, undefined]);
}
