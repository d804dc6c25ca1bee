import type { Logger } from "@logtape/logtape";
import packageJson from "../../package.json" with { type: "json" };
import type { Log } from "../telemetry/logging.ts";
import { createMetrics } from "../telemetry/metrics.ts";
import { sha256 } from "../auth/sha256.ts";
import { swaggerUi } from "./swagger_ui.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import { type TokenCache, tokenCache } from "../auth/token_cache.ts";
import type { Commit } from "../group_commit/batch.ts";
import type { Database } from "../database/database.ts";
import { PlantStoreError, reasonOf } from "../errors.ts";
import { groupCommit } from "../group_commit/group_commit.ts";
import { createApp } from "../http/app.ts";
import { forwardedFor } from "../http/forwarded.ts";
import { errorResponse } from "../http/responses.ts";
import type { Observer } from "../http/observer.ts";
import type { PlantStore } from "../database/plant_store.ts";
import { readiness } from "../http/readiness.ts";
import { authenticator } from "./authenticator.ts";
import { type Config, loggableSettings } from "../settings/config.ts";
import { watchDescriptors } from "./descriptors.ts";
import { watchEventLoop } from "../telemetry/event_loop.ts";
import { offerFirstToken } from "./first_token.ts";
import { type HttpServer, listen } from "./http_server.ts";
import { type StreamIo } from "./io.ts";
import { withAbort } from "../async/abort.ts";
import { repeat } from "../async/repeat.ts";
import { createObserver } from "../telemetry/observe.ts";
import { adapterOf } from "../database/open_database.ts";
import { toCommandError } from "../database/storage_refusal.ts";
import { shutDown, writeUses } from "./shutdown.ts";

/**
 * Everything between the database and the socket. A database that does not respond keeps no signal waiting.
 *
 * @returns Nothing where `io.stop` came before it listened.
 */
export async function startService(config: Config, database: Database, { log, logThrottled }: Log, io: StreamIo) {
  const tracing = await loadTracing(config, log);
  const metrics = createMetrics();
  using timers = new DisposableStack();
  const eventLoop = timers.adopt(watchEventLoop(log), stop);
  const observer = createObserver({ log, logThrottled, metrics, tracing, eventLoop }, config);
  const commits = await startCommits(database, config, observer.onCommit);
  metrics.registerQueue(() => commits.size());
  metrics.registerDatabase(database.metrics);
  const tokens = await withAbort(readTokens(database, config), io.stop);
  if (tokens === undefined) return undefined;
  let isShuttingDown = false;
  const app = createApp({
    plants: commits,
    ready: readyUntil(io.stop, database.plants),
    authenticate: authenticator(tokens, config, log),
    maxBodyBytes: config.maxBodyBytes,
    observer,
    corsOrigins: config.corsOrigins,
    clientAddress: (request) => (config.trustProxy && forwardedFor(request.headers)) || server.peerOf(request),
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    isShuttingDown: () => isShuttingDown,
  });
  const fetch = tracing === undefined ? app.fetch : tracing.trace(app.fetch);
  const server = await listen(config, { fetch, error: (cause) => internalError(cause, observer) });
  if (config.tls !== undefined) io.onHangup(() => void renewCertificate(server, log));
  logStartup(log, config, server.address);
  await withAbort(offerFirstToken(tokens, { ...config, address: server.address, io, log }), io.stop);
  for (const each of [watchDescriptors(server, log), keepFresh(tokens, log)]) timers.adopt(each, stop);
  const repeated = timers.move();
  return {
    /** Responds to what was accepted, or for a moment only where the storage failed. */
    stop(hasFailed: boolean): Promise<void> {
      io.onHangup(() => {});
      repeated.dispose();
      isShuttingDown = true;
      return shutDown({ server, commits, tokens, tracing }, { config, log, hasFailed });
    },
  };
}

async function startCommits({ plants }: Database, config: Config, onCommit: (commit: Commit) => void) {
  const { queueLimit, requestTimeoutMs: timeoutMs } = config;
  return groupCommit(plants, {
    queueLimit,
    timeoutMs,
    lanes: (await adapterOf(config.database)).maxInFlight,
    onCommit,
  });
}

/** Ends what is repeated: also where the start fails, no timer is left behind. */
function stop(each: { stop(): void }): void {
  each.stop();
}

async function readTokens({ tokens }: Database, { authTokens, database }: Config): Promise<TokenCache> {
  try {
    return await tokenCache(tokens, { staticTokens: authTokens, sha256 });
  } catch (error) {
    throw toCommandError(error, { action: "read the tokens", database: (await adapterOf(database)).name });
  }
}

/** OpenTelemetry is large: only a server with a collector loads it. */
async function loadTracing({ tracing }: Config, log: Logger): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined;
  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({ ...tracing, onFailure: (reason) => log.warning("Trace export failed", { reason }) });
}

/** The readiness of a store; it is over when the shutdown begins. */
function readyUntil(stop: AbortSignal, store: PlantStore): () => Promise<void> {
  const ready = readiness(() => store.probe());
  return () => (stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : ready());
}

/** What even the app could not respond to. */
function internalError(cause: unknown, observer: Observer): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  observer.onError(error, { requestId: "none", clientAddress: () => undefined });
  return errorResponse(error);
}

function logStartup(log: Logger, config: Config, address: string): void {
  const docs = config.docs ? `, documentation at ${address}/swagger` : "";
  log.info(`Plant Store listens on ${address}${docs}`, { version: packageJson.version });
  log.info("Configuration in force", loggableSettings(config));
}

/** Certificates are renewed every few weeks: from here on the new one is used, or the old one stays. */
async function renewCertificate(server: HttpServer, log: Logger): Promise<void> {
  try {
    log.info("Certificate read again", { expires: (await server.renewCertificate())?.expires.toISOString() });
  } catch (error) {
    log.error("Certificate not read again: the one before stays", { reason: reasonOf(error) });
  }
}

/** How old the token cache may get, in milliseconds: other processes create and revoke tokens. */
const REFRESH_MS = 2_000;

/** Two loops: revocations are read whether or not uses can be written, and however long that takes. */
function keepFresh(tokens: TokenCache, log: Logger): { stop(): void } {
  const refresh = () => tokens.refresh();
  const loops = [
    // A failure is tried again at once: it has closed the connection that hung, and there may be another one.
    repeat(REFRESH_MS, () =>
      refresh()
        .catch(refresh)
        .catch((cause) => log.warning("Tokens not read", { cause })),
    ),
    repeat(REFRESH_MS, () => writeUses(tokens, log)),
  ];
  return { stop: () => loops.forEach((loop) => loop.stop()) };
}
