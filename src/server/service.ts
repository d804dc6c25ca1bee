import { once } from "node:events";

import type { Logger } from "@logtape/logtape";

import { repeat, withAbort, withDeadline } from "../async/timers.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { TOKENS_MAX_AGE_MS } from "../auth/token_store.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import type { MakeQueue } from "../database/adapter.ts";
import { toCommandError } from "../database/refusals.ts";
import { CommandError, ConfigError, PlantStoreError, QuietFailure, reasonOf } from "../errors.ts";
import { type GroupCommit, groupCommit } from "../group_commit/group_commit.ts";
import type { Observer } from "../http/observer.ts";
import { errorResponse } from "../http/responses.ts";
import { readStaticTokens, urlReader } from "../settings/secret_files.ts";
import { type Config, loggableSettings } from "../settings/settings.ts";
import { type Logging, type LogOutput, startLogging } from "../telemetry/logging.ts";
import { createMetrics, type Metric } from "../telemetry/metrics.ts";
import { createObserver } from "../telemetry/service_observer.ts";
import type { Tracing, TracingOptions } from "../telemetry/tracing.ts";
import { offerFirstToken, type TokenTerminal } from "./first_token.ts";
import { HttpServer } from "./http_server.ts";
import { acceptJwts } from "./jwt_provider.ts";
import { watchEventLoop } from "./watchdog.ts";

/** The members of a command's `Io` that a service uses: signals, log and terminal. */
interface ServiceIo extends TokenTerminal {
  /** Aborted by the first signal that ends the process. */
  readonly stop: AbortSignal;
  /** Sets the listener for SIGHUP. */
  readonly onHangup: (listener: () => void) => void;
  readonly log: LogOutput;
  readonly hasColors: boolean;
  /** Resolves once the log is written, or after this time, in milliseconds. */
  readonly printed: (limitMs: number) => Promise<void>;
}

/**
 * Runs the service until a signal, or until its storage fails.
 *
 * @throws {QuietFailure} If the storage failed, even during the stop: the log has the cause.
 * @throws {ConfigError} If a file of the configuration cannot be used.
 * @throws {CommandError} If the server cannot listen, or the tokens cannot be read.
 * @throws {DatabaseError} If the database cannot be opened.
 */
export async function runService(
  config: Config,
  io: ServiceIo,
  { settingsFile, ignored }: Beginning,
): Promise<void> {
  const format = config.logFormat ?? (io.isTerminal ? "pretty" : "json");
  const { log: output, hasColors: colors } = io;
  using logging = startLogging({ level: config.logLevel, format, colors, output });
  const { log } = logging;
  for (const warning of ignored()) log.warning(warning);
  if (settingsFile !== undefined) log.info(`Read the settings in "${settingsFile}"`);
  const lifetime = beginLifetime(io.stop, config, log);

  {
    await using parts = new AsyncDisposableStack();
    await start({ ...config, logFormat: format }, { io, parts, logging, lifetime });
    if (!lifetime.stop.aborted) await once(lifetime.stop, "abort");
  }

  log.info("Stopped");
  await io.printed(lifetime.stopBy() - performance.now());
  if (lifetime.failed.aborted) throw new QuietFailure();
}

/** The facts for the first lines of the log. */
interface Beginning {
  /** The file of settings that was read. */
  readonly settingsFile: string | undefined;
  /** Returns warnings of variables that are ignored. */
  readonly ignored: () => readonly string[];
}

/** The signals and the deadline that end a service. */
interface Lifetime {
  /** Aborted when the service has to stop: by a signal, or because it failed. */
  readonly stop: AbortSignal;
  /** Aborted when the service failed, before the stop or during it. */
  readonly failed: AbortSignal;
  /** The deadline of the stop, by `performance.now()`. */
  readonly stopBy: () => number;
  /**
   * Logs the first failure, and stops the service. Ignores later failures: they follow from the
   * first.
   */
  readonly fail: (failure: Error) => void;
}

function beginLifetime(signal: AbortSignal, { shutdownTimeoutMs }: Config, log: Logger): Lifetime {
  const failing = new AbortController();
  const { signal: failed } = failing;
  const stop = AbortSignal.any([signal, failed]);
  let stopBy = Number.POSITIVE_INFINITY;

  stop.addEventListener("abort", () => {
    stopBy = performance.now() + shutdownTimeoutMs;
    if (!failed.aborted) log.info("Stopping: finishing the requests in flight");
  });

  return {
    stop,
    failed,
    stopBy: () => stopBy,
    fail({ message, cause }) {
      if (failed.aborted) return;
      const doing = stop.aborted ? "Failed while stopping" : "Stopping";
      log.error(`${doing}: ${message}`, { cause });
      failing.abort();
      stopBy = Math.min(stopBy, performance.now() + FAILED_STOP_MS);
    },
  };
}

/**
 * The maximum time of a stop after a failure, in milliseconds: only a new process can store plants.
 */
const FAILED_STOP_MS = 2_000;

/** The arguments of {@linkcode start} beside the configuration. */
interface Start {
  readonly io: ServiceIo;
  readonly parts: AsyncDisposableStack;
  readonly logging: Logging;
  readonly lifetime: Lifetime;
}

/**
 * Starts the parts of a service in order. Each part registers how to stop it; the stop runs these
 * steps in reverse. A failed start leaves nothing behind. A stop ends the start early.
 */
async function start(config: Config, { io, parts, logging, lifetime }: Start): Promise<void> {
  const { log } = logging;
  const { stop, failed } = lifetime;

  /**
   * Adds a step to the stop, and its share of the time for the whole stop. A failure during the step
   * cuts it short.
   */
  function atStop(share: number, step: (timeoutMs: number) => Promise<unknown>): void {
    const timeoutMs = share * config.shutdownTimeoutMs;
    const failedMs = Math.min(timeoutMs, share * FAILED_STOP_MS);

    parts.defer(async () => {
      const stepping = step(failed.aborted ? failedMs : timeoutMs);
      await withAbort(stepping, failed);
      await withDeadline(stepping, failedMs, () => {});
    });
  }

  const server = new HttpServer(config, stop);
  if (config.tls !== undefined) io.onHangup(() => void reloadCertificate(server, lifetime, log));

  // Before the database: a start that fails because of these files must not create one.
  const reading = Promise.all([readStaticTokens(config), server.loadCertificate()]);
  const [staticTokens] = (await withAbort(reading, stop)) ?? [];
  if (staticTokens === undefined) return;

  const metrics = createMetrics();
  metrics.register(() => ofProcess(server, io.log));

  const tracing = await loadTracing(config, (message, properties) =>
    log.warning(message, properties),
  );
  if (tracing !== undefined) {
    metrics.register(tracing.metrics);
    const reason = `the collector did not accept the last spans in time (${tracing.collector})`;
    const notSent = () => log.warning("Trace export failed", { reason });
    atStop(0.1, (timeoutMs) => withDeadline(tracing.close(), timeoutMs, notSent));
  }

  const observer = createObserver({ ...logging, metrics, tracing }, config);
  const makeQueue: MakeQueue = (store, maxInFlight) =>
    groupCommit(store, {
      queueLimit: config.queueLimit,
      timeoutMs: config.requestTimeoutMs,
      maxInFlight,
      onCommit: observer.onCommit,
    });

  // Opening may wait for a lock or a disk. Meanwhile the rest of the program is loaded.
  const opening = requireSafePlace(config, (sentence) => log.warning(sentence)).then(() =>
    config.database.openForServing({
      makeQueue: tracing?.tracePlants(makeQueue) ?? makeQueue,
      readUrl: urlReader(config),
      create: !config.production,
      onCreate: (created) => log.info(`Initialized empty database "${created}"`),
      onWarning: (message, { reason, cause } = {}) => log.warning(message, { reason, cause }),
      onInfo: (message, properties) => log.info(message, properties),
    }),
  );
  const loading = Promise.all([
    import("../http/app.ts"),
    import("../http/health.ts"),
    import("../auth/token_cache.ts"),
    import("./swagger_ui.ts"),
  ]);
  const database = await withAbort(opening, stop);
  if (database === undefined) return;
  // If root has become the owner of the database, a reload reads these files as that user.
  await server.loadCertificate().catch((error: unknown) => {
    log.warning("The certificate cannot be reloaded later", { reason: reasonOf(error) });
  });

  const failStorage = (cause: Error) =>
    lifetime.fail(new PlantStoreError("storage_unavailable", "the storage failed", { cause }));
  void database.failed.then(failStorage);
  atStop(0.2, (timeoutMs) => {
    const closing = database[Symbol.asyncDispose]() as Promise<void>;
    // Saving a database whose file was removed may need all of the remaining time.
    const leftMs = lifetime.stopBy() - performance.now() - 0.1 * config.shutdownTimeoutMs;
    // Without a save nothing is lost: plants are on the disk, and the next start reads the WAL.
    const notClosed = () => log.warning("Cannot close the database: the disk does not respond");
    return withDeadline(closing.catch(failStorage), Math.max(timeoutMs, leftMs), notClosed);
  });

  const [{ createApp }, { readiness }, { tokenCache }, { swaggerUi }] = await loading;

  const options = { staticTokens, maxAgeMs: TOKENS_MAX_AGE_MS };
  const loadingTokens = tokenCache(database.tokens, options).catch((error) => {
    throw toCommandError(error, { action: "read the tokens", database: config.database.name });
  });
  const tokens = await withAbort(loadingTokens, stop);
  if (tokens === undefined) return;

  metrics.register(() => ofTokens(tokens));

  // Uses that cannot be written are kept for the next call.
  const writeUses = () =>
    tokens
      .writeUses()
      .catch((cause) => log.warning("Cannot record when tokens were last used", { cause }));
  atStop(0.05, async (timeoutMs) => {
    if (!failed.aborted) await withDeadline(writeUses(), timeoutMs, () => {});
  });

  const { plants } = database;
  metrics.registerQueue(plants);
  metrics.register(database.metrics);

  const storable = readiness(() => database.ready());
  const ready = () =>
    stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : storable();
  metrics.registerReady(ready);

  const authenticate = acceptJwts(tokens.authenticate, config, { log, metrics, parts });
  const app = createApp({
    plants,
    authenticate,
    ready,
    observer,
    renderMetrics: metrics.render,
    docsFiles: config.docs ? swaggerUi : undefined,
    corsOrigins: config.corsOrigins,
    maxBodyBytes: config.maxBodyBytes,
    clientAddress: server.clientAddress,
    isShuttingDown: server.isShuttingDown,
  });
  const fetch = tracing?.trace(app.fetch) ?? app.fetch;
  const address = server.listen({ fetch, error: (cause) => internalError(cause, observer) });
  atStop(0.65, (timeoutMs) => finishRequests(server, plants, timeoutMs));

  const docs = config.docs ? `, documentation at ${address}/swagger` : "";
  log.info(`Plant Store listens on ${address}${docs}`, { version: version() });
  log.info("Configuration in force", loggableSettings({ ...config, authTokens: staticTokens }));

  // With an identity provider, clients get their tokens there.
  if (config.jwt === undefined)
    await withAbort(offerFirstToken(tokens, { ...config, address, terminal: io, log }), stop);

  parts.use(watchEventLoop(log, metrics.countBlocked));
  parts.use(repeat(REFRESH_TOKENS_MS, () => refreshTokens(tokens, log)));
  parts.use(repeat(WRITE_USES_MS, writeUses));
}

/**
 * Starts sending traces, if a collector is set. OpenTelemetry is large: no other server loads it.
 *
 * @throws {ConfigError} If a variable of OpenTelemetry cannot be used.
 */
export async function loadTracing(
  { tracing }: Config,
  warn: TracingOptions["warn"],
): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined;

  const { startTracing } = await import("../telemetry/tracing.ts");
  return startTracing({ ...tracing, warn, serviceVersion: version() });
}

/**
 * How often to refresh the token cache, in milliseconds: other processes create and revoke tokens.
 * Within `TOKENS_MAX_AGE_MS`, reading the revision may hang once until its deadline, and the next
 * refresh can still succeed.
 */
const REFRESH_TOKENS_MS = 1_000;

/**
 * How often to write uses of tokens, in milliseconds. It has a separate timer, so that slow writes
 * do not delay revocations.
 */
const WRITE_USES_MS = 2_000;

/**
 * Refuses a database whose place may lose it, such as a network file system. Outside production,
 * only warns.
 *
 * @throws {CommandError} If the database could be lost, in production.
 */
export async function requireSafePlace(
  { database, production }: Config,
  onWarning: (sentence: string) => void,
): Promise<void> {
  const fault = await database.placeFault();
  if (fault === undefined) return;
  if (production) throw new CommandError(`Cannot open database "${database.name}": ${fault}`);
  onWarning(`The database "${database.name}" may be lost: ${fault}`);
}

/**
 * Refreshes the tokens, and retries once: a failure has closed the connection that hung, and a new
 * one may work.
 */
function refreshTokens(tokens: TokenCache, log: Logger): Promise<void> {
  return tokens
    .refresh()
    .catch(() => tokens.refresh())
    .catch((cause) => log.warning("Cannot reload tokens", { cause }));
}

/**
 * Finishes the requests in flight, with 503 if a plant was not stored in time. At first the server
 * still listens: requests in transit get 503 with `Connection: close`, but would get no response
 * from a closed port. After the deadline, requests with incomplete bodies lose their connections.
 */
export async function finishRequests(
  server: HttpServer,
  plants: GroupCommit,
  timeoutMs: number,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  const drained = plants.drain(timeoutMs / 2);

  await server.untilQuiet(timeoutMs / 4);
  await Promise.all([drained, server.stop(deadline - performance.now())]);
}

/** Returns the metrics of the process. */
function ofProcess(server: HttpServer, log: LogOutput): Metric[] {
  const expires = server.certificateExpires();

  return [
    {
      name: "plant_store_build_info",
      help: "The version of the program",
      type: "gauge",
      labels: { version: version() },
      value: 1,
    },

    {
      name: "plant_store_log_lines_lost_total",
      help: "Lines of the log that stderr did not take",
      type: "counter",
      value: log.lostLines(),
    },

    ...(expires === undefined
      ? []
      : [
          {
            name: "plant_store_certificate_expiration_timestamp_seconds",
            help: "When the served certificate expires, since 1970 UTC",
            type: "gauge" as const,
            value: expires.getTime() / 1_000,
          },
        ]),
  ];
}

/** Returns the metric of the next expiry of a token: from then on, its clients get 401. */
function ofTokens(tokens: TokenCache): Metric[] {
  const next = tokens.nextExpiry();
  if (next === undefined) return [];

  return [
    {
      name: "plant_store_token_expiration_timestamp_seconds",
      help: "When the next stored token expires of those used within a day, since 1970 UTC",
      type: "gauge",
      labels: { token: next.name },
      value: next.expiresAt / 1_000,
    },
  ];
}

/** Returns the response if the app itself throws. */
function internalError(cause: unknown, observer: Observer): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  observer.onError(error, { requestId: "none", clientAddress: () => undefined });
  return errorResponse(error);
}

/**
 * Reloads the certificate, which is renewed every few weeks. Keeps the current one if the new one
 * cannot be used.
 */
async function reloadCertificate(server: HttpServer, { fail }: Lifetime, log: Logger) {
  try {
    const expires = await server.reloadCertificate();
    if (expires !== undefined) log.info("Certificate reloaded", { expires: expires.toISOString() });
  } catch (error) {
    if (!(error instanceof ConfigError)) return fail(error as Error);
    log.error("Certificate reload failed; keeping the current one", { reason: reasonOf(error) });
  }
}
