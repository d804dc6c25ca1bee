import { once } from "node:events";
import type { Logger } from "@logtape/logtape";
import type { Logging } from "../telemetry/logging.ts";
import packageJson from "../../package.json" with { type: "json" };
import { createMetrics } from "../telemetry/metrics.ts";
import { sha256 } from "../auth/sha256.ts";
import { swaggerUi } from "./swagger_ui.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { isCompact, jwtAuthenticator } from "../auth/jwt.ts";
import type { Tracing } from "../telemetry/tracing.ts";
import { type TokenCache, tokenCache } from "../auth/token_cache.ts";
import type { Commit } from "../group_commit/batch.ts";
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
import { adapterOf, toCommandError } from "../database/open_database.ts";
import { shutDown, writeUses } from "./shutdown.ts";
import { watchDescriptors, watchEventLoop } from "./watchdog.ts";

/** What a service needs from outside. */
export interface ServiceOptions {
  readonly database: Database;
  readonly server: HttpServer;
  readonly logging: Pick<Logging, "log" | "suppresses">;
  /** Ends the service; if the storage failed, with a `PlantStoreError` as its reason. */
  readonly stop: AbortSignal;
  /** Where the first token is printed. */
  readonly terminal: FirstTokenOptions["terminal"];
}

/**
 * Everything between the database and the socket. Serves until `stop`, then responds to the requests in flight. A
 * database that does not respond keeps no signal waiting.
 *
 * @throws {ConfigError} If the TLS files cannot be used.
 * @throws {CommandError} If the server cannot listen, or the tokens cannot be read.
 */
export async function runService(config: Config, options: ServiceOptions): Promise<void> {
  const { database, server, logging, stop, terminal } = options;
  const { log } = logging;
  const tracing = await loadTracing(config, log);
  const metrics = createMetrics();
  using timers = new DisposableStack();
  timers.adopt(watchEventLoop(log), end);
  const observer = createObserver({ ...logging, metrics, tracing }, config);
  const commits = await startCommits(database, config, observer.onCommit);
  metrics.registerQueue(() => commits.size());
  metrics.registerDatabase(database.metrics);
  const tokens = await withAbort(readTokens(database, config), stop);
  if (tokens === undefined) return;
  const ready = readiness(() => database.plants.probe());
  const app = createApp({
    plants: commits,
    ready: () => (stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : ready()),
    authenticate: authenticator(tokens, config, log),
    maxBodyBytes: config.maxBodyBytes,
    observer,
    corsOrigins: config.corsOrigins,
    clientAddress: (request) => clientAddress(request, server, config),
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    isShuttingDown: () => stop.aborted || server.isDraining(),
  });
  const fetch = tracing === undefined ? app.fetch : tracing.trace(app.fetch);
  const listening = server.listen({ fetch, error: (cause) => internalError(cause, observer) });
  const address = await withAbort(listening, stop);
  if (address === undefined) return server.stop(0);
  logStartup(log, config, address);
  const adapter = await adapterOf(config.database);
  await withAbort(offerFirstToken(tokens, { ...config, address, database: adapter, terminal, log }), stop);
  for (const each of [watchDescriptors(log), keepFresh(tokens, log)]) timers.adopt(each, end);
  if (!stop.aborted) await once(stop, "abort");
  timers.dispose();
  await shutDown(
    { server, commits, tokens, tracing },
    { config, log, hasFailed: stop.reason instanceof PlantStoreError },
  );
}

/** The address that the trusted proxy names, or else the peer's. */
function clientAddress(request: Request, server: HttpServer, { trustProxy }: Config): string | undefined {
  const forwarded = trustProxy === "off" ? undefined : forwardedFor(request.headers, trustProxy);
  return forwarded ?? server.peerOf(request);
}

async function startCommits({ plants }: Database, config: Config, onCommit: (commit: Commit) => void) {
  const { queueLimit, requestTimeoutMs: timeoutMs } = config;
  return groupCommit(plants, {
    queueLimit,
    timeoutMs,
    maxInFlight: (await adapterOf(config.database)).maxInFlight,
    onCommit,
  });
}

/** Ends what is repeated: if the start fails, too, no timer is left behind. */
function end(each: { stop(): void }): void {
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

/**
 * Who may call: our own tokens, which are validated from memory, and the JWTs of an identity provider if one is set. A
 * token that is not our own, and has the three parts of a JWT, is verified with the provider's keys.
 */
function authenticator(tokens: TokenCache, { jwt, jwtAlgorithms, jwtScope }: Config, log: Logger): Authenticate {
  if (jwt === undefined) return tokens.authenticate;
  // Bun puts the URL into the error, and its query may hold a key.
  const onKeysUnavailable = (cause: unknown) =>
    log.warning("Keys of the identity provider not read", { reason: reasonOf(cause) });
  const options = { ...jwt, algorithms: jwtAlgorithms, scope: jwtScope, sha256, onKeysUnavailable, fetch: fetchKeys };
  const authenticateJwt = jwtAuthenticator(options);
  return (token) => {
    const verdict = tokens.authenticate(token);
    return verdict.ok || !isCompact(token) ? verdict : authenticateJwt(token);
  };
}

/**
 * Whoever changes keys on their way can sign tokens. So `NODE_TLS_REJECT_UNAUTHORIZED` does not switch off the check of
 * the provider's certificate, and keys of this machine, which may come in the clear, pass no proxy that `HTTP_PROXY`
 * names. Other providers are asked through the proxy: it cannot change HTTPS.
 */
function fetchKeys(url: string, init: RequestInit): Promise<Response> {
  const direct = isLoopback(new URL(url)) ? { proxy: false as const } : {};
  return fetch(url, { ...init, ...direct, tls: { rejectUnauthorized: true } });
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
