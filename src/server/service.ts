import { once } from "node:events";

import type { Logger } from "@logtape/logtape";

import { withAbort } from "../async/deadline.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import type { DatabaseAdapter } from "../database/adapter.ts";
import type { Database } from "../database/database.ts";
import { PlantStoreError } from "../errors.ts";
import { type GroupCommit, groupCommit } from "../group_commit/group_commit.ts";
import { createApp } from "../http/app.ts";
import { readiness } from "../http/health.ts";
import type { Observer } from "../http/observer.ts";
import { forwardedFor } from "../http/request.ts";
import { errorResponse } from "../http/responses.ts";
import { type Config, loggableSettings } from "../settings/settings.ts";
import type { Logging } from "../telemetry/logging.ts";
import { createMetrics, type Metrics } from "../telemetry/metrics.ts";
import { createObserver } from "../telemetry/request_log.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import { authenticator, keepFresh, loadTokens } from "./authentication.ts";
import { type FirstTokenOptions, offerFirstToken } from "./first_token.ts";
import type { HttpServer } from "./http_server.ts";
import { type Lifetime, shutDown } from "./shutdown.ts";
import { swaggerUi } from "./swagger_ui.ts";
import { watchDescriptors, watchEventLoop } from "./watchdog.ts";

/** What the command that serves has opened. */
export interface ServiceOptions {
  readonly adapter: DatabaseAdapter;
  readonly database: Database;
  readonly server: HttpServer;
  readonly logging: Pick<Logging, "log" | "suppresses">;
  readonly lifetime: Lifetime;
  readonly terminal: FirstTokenOptions["terminal"];
}

/**
 * Connects everything between the database and the socket. Serves until the end of `lifetime`, then
 * finishes the requests in flight.
 *
 * @throws {ConfigError} If the TLS files cannot be used.
 * @throws {CommandError} If the server cannot listen, or the tokens cannot be read.
 */
export async function runService(config: Config, options: ServiceOptions): Promise<void> {
  const { adapter, database, server, logging, lifetime, terminal } = options;
  const { log } = logging;
  const { stop } = lifetime;
  using timers = new DisposableStack();
  timers.use(watchEventLoop(log));

  const tracing = await loadTracing(config, log);
  const metrics = createMetrics();
  const observer = createObserver({ ...logging, metrics, tracing }, config);

  const commits = groupCommit(database.plants, {
    queueLimit: config.queueLimit,
    timeoutMs: config.requestTimeoutMs,
    maxInFlight: adapter.maxInFlight,
    onCommit: observer.onCommit,
  });
  metrics.registerQueue(() => commits.size());
  metrics.registerDatabase(database.metrics);

  const staticTokens = config.authTokens;
  const tokens = await loadTokens(database.tokens, { staticTokens, database: adapter.name, stop });
  if (tokens === undefined) return;

  const authenticate = authenticator(tokens, config, log);
  const app = appOf(config, { database, server, commits, authenticate, observer, metrics, stop });
  const fetch = tracing === undefined ? app.fetch : tracing.trace(app.fetch);
  const listening = server.listen({ fetch, error: (cause) => internalError(cause, observer) });
  const address = await withAbort(listening, stop);
  if (address === undefined) return server.stop(0);

  const docs = config.docs ? `, documentation at ${address}/swagger` : "";
  log.info(`Plant Store listens on ${address}${docs}`, { version: version() });
  log.info("Configuration in force", loggableSettings(config));
  await withAbort(
    offerFirstToken(tokens, { ...config, address, database: adapter, terminal, log }),
    stop,
  );

  // What cannot be written is kept for the next call.
  const writeUses = () =>
    tokens.writeUses().catch((cause) => log.warning("Uses of tokens not written", { cause }));
  for (const timer of [watchDescriptors(log), ...keepFresh(tokens, writeUses, log)])
    timers.use(timer);

  if (!stop.aborted) await once(stop, "abort");
  timers.dispose();
  await shutDown({ server, commits, writeUses, tracing }, lifetime, log);
}

/** OpenTelemetry is large: only a server with a collector loads it. */
async function loadTracing({ tracing }: Config, log: Logger): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined;

  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({
    ...tracing,
    serviceVersion: version(),
    onFailure: (reason) => log.warning("Trace export failed", { reason }),
  });
}

/** What the app stands on. */
interface AppParts extends Pick<ServiceOptions, "database" | "server"> {
  readonly commits: GroupCommit;
  readonly authenticate: Authenticate;
  readonly observer: Observer;
  readonly metrics: Metrics;
  readonly stop: AbortSignal;
}

/** The app, with everything that it needs of the configuration and the other parts. */
function appOf(
  config: Config,
  { database, server, commits, authenticate, observer, metrics, stop }: AppParts,
) {
  const { trustProxy } = config;
  const ready = readiness(() => database.plants.probe());

  return createApp({
    plants: commits,
    ready: () => (stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : ready()),
    authenticate,
    maxBodyBytes: config.maxBodyBytes,
    observer,
    corsOrigins: config.corsOrigins,
    clientAddress: (request) =>
      (trustProxy === "off" ? undefined : forwardedFor(request.headers, trustProxy)) ??
      server.peerOf(request),
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    isShuttingDown: () => stop.aborted || server.isDraining(),
  });
}

/** The response if even the app fails. */
function internalError(cause: unknown, observer: Observer): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  observer.onError(error, { requestId: "none", clientAddress: () => undefined });
  return errorResponse(error);
}
