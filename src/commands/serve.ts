import type { Logger } from "@logtape/logtape";
import packageJson from "../../package.json" with { type: "json" };
import { startLogging } from "../adapters/logging.ts";
import { createMetrics } from "../adapters/metrics.ts";
import { sha256 } from "../adapters/sha256.ts";
import { openSqlite } from "../adapters/sqlite/worker_client.ts";
import { swaggerUi } from "../adapters/swagger_ui.ts";
import type { Tracing } from "../adapters/tracing.ts";
import { errorResponse } from "../http/responses.ts";
import { createApp } from "../http/app.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import type { Config } from "./config.ts";
import { PlantStoreError } from "../errors.ts";
import { type GroupCommit, groupCommit } from "../group_commit.ts";
import { jwtAuthenticator } from "../auth/jwt.ts";
import { type TokenCache, tokenCache } from "../auth/token_cache.ts";
import { readiness } from "../readiness.ts";
import type { PlantStore } from "../plant_store.ts";
import { offerFirstToken } from "./first_token.ts";
import { type HttpServer, listen } from "./http_server.ts";
import type { StreamIo } from "./io.ts";
import { aborted, repeat } from "./waiting.ts";
import { type Watch, watch } from "./observe.ts";

/** A wait for another process's lock ends before the request's own deadline, so that the response can tell why. */
const BUSY_SHARE = 0.9;
/** What of the time to shut down is kept for closing the database. */
const CLOSE_SHARE = 0.2;
/** And what for sending the last traces. */
const TRACES_SHARE = 0.1;
/** How long waiters may take to hear that the storage broke, in milliseconds: the process has to end soon. */
const BROKEN_TIMEOUT = 1_000;

/** How old what is known of tokens may get, in milliseconds: other processes create and revoke them. */
const REFRESH_MS = 2_000;

/**
 * `plant-store serve`: serves until `io.stop`, then answers what was accepted and closes the database.
 *
 * @returns 0 after a stop that was asked for, 1 when the storage broke.
 */
export async function serve(config: Config, io: StreamIo): Promise<number> {
  const log = startLogging({
    level: config.logLevel,
    format: config.logFormat ?? (io.isTerminal ? "pretty" : "json"),
    write: io.stderr,
  });
  const stopped = aborted(io.stop);
  const broken = Promise.withResolvers<Error>();
  const opening = openSqlite(config.databasePath, {
    busyTimeoutMs: config.requestTimeoutMs * BUSY_SHARE,
    closeTimeoutMs: config.shutdownTimeoutMs * CLOSE_SHARE,
    onBroken: broken.resolve,
  });
  // Checking a large file takes its time, and nothing is lost by not waiting for it.
  const opened = await Promise.race([opening, stopped]);
  if (opened === undefined) return 0;
  await using store = opened.plants;
  const metrics = createMetrics(() => commits.size());
  const tracing = await traceIf(config, log);
  const watching = watch({ log, metrics, tracing }, config);
  const commits = groupCommit(store, {
    queueLimit: config.queueLimit,
    timeoutMs: config.requestTimeoutMs,
    defer: (run) => void setImmediate(run),
    onCommit: watching.onCommit,
  });
  const cache = await tokenCache(opened.tokens, { fixed: config.authTokens, sha256 });
  const app = createApp({
    plants: commits,
    ready: readyUntil(io.stop, store),
    authenticate: firstOf(cache.authenticate, acceptJwts(config, log)),
    maxBodyBytes: config.maxBodyBytes,
    observer: watching,
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    instrumentation: tracing?.plugin,
  });
  const server = await listen(config, { fetch: app.fetch, error: (cause) => fault(cause, watching) });
  logStartup(log, config, server.address);
  await offerFirstToken(cache, server.address, config, sha256, io);
  const refreshing = repeat(REFRESH_MS, () =>
    Promise.all([
      cache.refresh().catch((cause) => log.warning("Tokens not read", { cause })),
      cache.writeUses().catch((cause) => log.warning("Uses of tokens not written", { cause })),
    ]),
  );
  const failure = await Promise.race([stopped, broken.promise]);
  refreshing.stop();
  if (failure === undefined) log.info("Stopping: answering what was accepted");
  else log.error("Stopping: the storage broke", { cause: failure });
  const answering = 1 - CLOSE_SHARE - (tracing ? TRACES_SHARE : 0);
  await shutDown(server, commits, failure ? BROKEN_TIMEOUT : config.shutdownTimeoutMs * answering);
  await tracing?.close(config.shutdownTimeoutMs * TRACES_SHARE);
  return failure ? 1 : 0;
}

/** Loads what traces only where somebody takes traces: it is large, and instruments every request. */
async function traceIf({ tracing }: Config, log: Logger): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined;
  const { startTracing } = await import("../adapters/tracing.ts");
  return startTracing({ ...tracing, onFailure: (reason) => log.warning("Traces not sent", { reason }) });
}

/** JWTs of the identity provider, if there is one. */
function acceptJwts({ jwt }: Config, log: Logger): Authenticate | undefined {
  const onKeysUnavailable = (cause: unknown) => log.warning("Keys of the identity provider not read", { cause });
  return jwt && jwtAuthenticator({ ...jwt, onKeysUnavailable });
}

/** Our own tokens are known at once; what has the three parts of a JWT and is none of them is for the provider's keys. */
function firstOf(own: TokenCache["authenticate"], jwts: Authenticate | undefined): Authenticate {
  if (jwts === undefined) return own;
  return (token) => {
    const verdict = own(token);
    return verdict.ok || token.split(".").length !== 3 ? verdict : jwts(token);
  };
}

/** The readiness of a store, which ends when the stop begins. */
function readyUntil(stop: AbortSignal, store: PlantStore): () => Promise<void> {
  const storable = readiness(() => store.probe());
  return () => (stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : storable());
}

/** What even the app could not answer: a fault of ours outside of it. */
function fault(cause: unknown, watching: Watch): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  watching.onError(error, "none");
  return errorResponse(error);
}

function logStartup(log: Logger, { authTokens, ...config }: Config, address: string): void {
  const docs = config.docs ? `, documentation at ${address}/swagger` : "";
  log.info(`Plant Store listens on ${address}${docs}`, { version: packageJson.version });
  log.info("Configuration in force", { ...config, authTokens: authTokens.length });
}

/**
 * Requests that are on their way still need a response: for this long everything new is answered 503 with
 * `Connection: close`, in milliseconds.
 */
const GRACE = 250;

async function shutDown(server: HttpServer, commits: GroupCommit, timeoutMs: number): Promise<void> {
  const grace = Math.min(GRACE, timeoutMs / 4);
  const drained = commits.drain(timeoutMs / 2);
  await Bun.sleep(grace);
  await Promise.all([drained, server.stop(timeoutMs - grace)]);
}
