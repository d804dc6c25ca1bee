import { once } from "node:events";
import type { Logger } from "@logtape/logtape";
import type { Logging } from "../telemetry/logging.ts";
import packageJson from "../../package.json" with { type: "json" };
import { createMetrics } from "../telemetry/metrics.ts";
import { sha256 } from "../auth/sha256.ts";
import { swaggerUi } from "./swagger_ui.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { jwtAuthenticator } from "../auth/jwt.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import { type TokenCache, tokenCache } from "../auth/token_cache.ts";
import type { DatabaseAdapter } from "../database/adapter.ts";
import type { Database } from "../database/database.ts";
import { PlantStoreError, reasonOf } from "../errors.ts";
import { groupCommit } from "../group_commit/group_commit.ts";
import { createApp } from "../http/app.ts";
import { forwardedFor } from "../http/request.ts";
import { errorResponse } from "../http/responses.ts";
import type { Observer } from "../http/observer.ts";
import { readiness } from "../http/health.ts";
import { type Config, loggableSettings } from "../settings/settings.ts";
import { isLoopback } from "../settings/parsers.ts";
import { type FirstTokenOptions, offerFirstToken } from "./first_token.ts";
import type { HttpServer } from "./http_server.ts";
import { withAbort } from "../async/deadline.ts";
import { repeat } from "../async/timers.ts";
import { createObserver } from "../telemetry/observer.ts";
import { toCommandError } from "../database/open_database.ts";
import { shutDown, writeUses } from "./shutdown.ts";
import { watchDescriptors, watchEventLoop } from "./watchdog.ts";

/** What the command that serves has opened. */
export interface ServiceOptions {
  readonly adapter: DatabaseAdapter;
  readonly database: Database;
  readonly server: HttpServer;
  readonly logging: Pick<Logging, "log" | "suppresses">;
  /** Ends the service; if the storage failed, with a `PlantStoreError` as its reason. */
  readonly stop: AbortSignal;
  readonly terminal: FirstTokenOptions["terminal"];
}

/**
 * Connects everything between the database and the socket. Serves until `stop`, then finishes the requests in flight.
 *
 * @throws {ConfigError} If the TLS files cannot be used.
 * @throws {CommandError} If the server cannot listen, or the tokens cannot be read.
 */
export async function runService(config: Config, options: ServiceOptions): Promise<void> {
  const { adapter, database, server, logging, stop, terminal } = options;
  const { log } = logging;
  const { trustProxy } = config;
  const tracing = await loadTracing(config, log);
  const metrics = createMetrics();
  using timers = new DisposableStack();
  timers.use(watchEventLoop(log));
  const observer = createObserver({ ...logging, metrics, tracing }, config);
  const commits = groupCommit(database.plants, {
    queueLimit: config.queueLimit,
    timeoutMs: config.requestTimeoutMs,
    maxInFlight: adapter.maxInFlight,
    onCommit: observer.onCommit,
  });
  metrics.registerQueue(() => commits.size());
  metrics.registerDatabase(database.metrics);
  const reading = tokenCache(database.tokens, { staticTokens: config.authTokens, sha256 }).catch((error) => {
    throw toCommandError(error, { action: "read the tokens", database: adapter.name });
  });
  const tokens = await withAbort(reading, stop);
  if (tokens === undefined) return;
  const ready = readiness(() => database.plants.probe());
  const app = createApp({
    plants: commits,
    ready: () => (stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : ready()),
    authenticate: authenticator(tokens, config, log),
    maxBodyBytes: config.maxBodyBytes,
    observer,
    corsOrigins: config.corsOrigins,
    clientAddress: (request) =>
      (trustProxy === "off" ? undefined : forwardedFor(request.headers, trustProxy)) ?? server.peerOf(request),
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    isShuttingDown: () => stop.aborted || server.isDraining(),
  });
  const fetch = tracing === undefined ? app.fetch : tracing.trace(app.fetch);
  const listening = server.listen({ fetch, error: (cause) => internalError(cause, observer) });
  const address = await withAbort(listening, stop);
  if (address === undefined) return server.stop(0);
  const docs = config.docs ? `, documentation at ${address}/swagger` : "";
  log.info(`Plant Store listens on ${address}${docs}`, { version: packageJson.version });
  log.info("Configuration in force", loggableSettings(config));
  await withAbort(offerFirstToken(tokens, { ...config, address, database: adapter, terminal, log }), stop);
  for (const each of [watchDescriptors(log), ...keepFresh(tokens, log)]) timers.use(each);
  if (!stop.aborted) await once(stop, "abort");
  timers.dispose();
  const hasFailed = stop.reason instanceof PlantStoreError;
  await shutDown({ server, commits, tokens, tracing, config, log, hasFailed });
}

/** OpenTelemetry is large: only a server with a collector loads it. */
async function loadTracing({ tracing }: Config, log: Logger): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined;
  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({ ...tracing, onFailure: (reason) => log.warning("Trace export failed", { reason }) });
}

/** Accepts our own tokens, and the JWTs of an identity provider if one is set. */
function authenticator(tokens: TokenCache, { jwt, jwtAlgorithms, jwtScope }: Config, log: Logger): Authenticate {
  if (jwt === undefined) return tokens.authenticate;
  // The message only: Bun puts the URL into the error, and its query may have a key.
  const onKeysUnavailable = (cause: unknown) =>
    log.warning("Keys of the identity provider not read", { reason: reasonOf(cause) });
  const options = { ...jwt, algorithms: jwtAlgorithms, scope: jwtScope, sha256, onKeysUnavailable, fetch: fetchKeys };
  const authenticateJwt = jwtAuthenticator(options);
  return (token) => {
    const verdict = tokens.authenticate(token);
    // A signed JWT has three parts (RFC 7515, section 7.1).
    return verdict.ok || token.split(".", 4).length !== 3 ? verdict : authenticateJwt(token);
  };
}

/**
 * Whoever changes keys on their way can sign tokens. So `NODE_TLS_REJECT_UNAUTHORIZED` does not disable the check of
 * the provider's certificate, and a provider on this machine, which may use plain HTTP, is reached without the proxy
 * that `HTTP_PROXY` names. Others are reached through the proxy, which cannot change HTTPS.
 */
function fetchKeys(url: string, init: RequestInit): Promise<Response> {
  const direct = isLoopback(new URL(url)) ? { proxy: false as const } : {};
  return fetch(url, { ...init, ...direct, tls: { rejectUnauthorized: true } });
}

/** The response if even the app fails. */
function internalError(cause: unknown, observer: Observer): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  observer.onError(error, { requestId: "none", clientAddress: () => undefined });
  return errorResponse(error);
}

/** How often to refresh the token cache, in milliseconds: other processes create and revoke tokens. */
const REFRESH_MS = 2_000;

/** Two loops: reading revocations does not depend on writing uses, nor on how long that takes. */
function keepFresh(tokens: TokenCache, log: Logger): Disposable[] {
  // Retries a failure at once: it closed the connection that hung, and another one may work.
  const refresh = () => tokens.refresh().catch(() => tokens.refresh());
  const refreshOrWarn = () => refresh().catch((cause) => log.warning("Tokens not read", { cause }));
  return [repeat(REFRESH_MS, refreshOrWarn), repeat(REFRESH_MS, () => writeUses(tokens, log))];
}
