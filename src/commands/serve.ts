import { openSqlite } from "../adapters/sqlite/open.ts";
import { swaggerUi } from "../adapters/swagger_ui.ts";
import { type AppOptions, createApp, fault } from "../app.ts";
import type { Config } from "../config.ts";
import { PlantStoreError } from "../errors.ts";
import { type GroupCommit, groupCommit } from "../group_commit.ts";
import { readiness } from "../readiness.ts";
import { knownTokens } from "../known_tokens.ts";
import { offerFirstToken } from "./first_token.ts";
import { type HttpServer, listen } from "./http_server.ts";
import type { Io } from "./io.ts";
import { sha256 } from "../adapters/sha256.ts";

/** A wait for another process's lock ends before the request's own deadline, so that the answer can tell why. */
const BUSY_SHARE = 0.9;
/** What of the time to shut down is kept for closing the database. */
const CLOSE_SHARE = 0.2;
/** How long waiters may take to hear that the storage broke, in milliseconds: the process has to end soon. */
const BROKEN_TIMEOUT = 1_000;

/** How old what is known of tokens may get, in milliseconds: other processes create and revoke them. */
const REFRESH_MS = 2_000;

/**
 * `plant-store serve`: serves until `io.stop`, then answers what was accepted and closes the database.
 *
 * @returns 0 after a stop that was asked for, 1 when the storage broke.
 */
export async function serve(config: Config, io: Io): Promise<number> {
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
  const commits = groupCommit(store, {
    queueLimit: config.queueLimit,
    timeoutMs: config.requestTimeoutMs,
    defer: (run) => void setImmediate(run),
  });
  const known = await knownTokens(opened.tokens, { fixed: config.authTokens, sha256 });
  const storable = readiness(() => store.probe());
  const onFault: AppOptions["onFault"] = (cause, requestId) => io.stderr(`${requestId} ${Bun.inspect(cause)}\n`);
  const app = createApp({
    plants: commits,
    ready: () => (io.stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : storable()),
    authenticate: known.authenticate,
    maxBodyBytes: config.maxBodyBytes,
    docsFiles: config.docs ? swaggerUi : undefined,
    onFault,
  });
  const server = await listen(config, { fetch: app.fetch, error: (cause) => fault(cause, onFault) });
  io.stderr(
    `Plant Store listens on ${server.address}${config.docs ? `, documentation at ${server.address}/swagger` : ""}\n`,
  );
  await offerFirstToken(known, server.address, config, sha256, io);
  const refreshing = repeat(REFRESH_MS, () => known.refresh());
  const failure = await Promise.race([stopped, broken.promise]);
  refreshing.stop();
  io.stderr(failure ? `Stopping: ${failure.message} (${failure.cause})\n` : "Stopping: answering what was accepted\n");
  await shutDown(server, commits, failure ? BROKEN_TIMEOUT : config.shutdownTimeoutMs * (1 - CLOSE_SHARE));
  return failure ? 1 : 0;
}

/** Runs again and again with a pause between, until it is stopped: one that hangs is followed by no other. */
function repeat(pauseMs: number, run: () => Promise<void>) {
  let stopped = false;
  let timer = setTimeout(again, pauseMs);
  async function again(): Promise<void> {
    // What keeps the storage from answering is told to those who wait for it.
    await run().catch(() => {});
    if (!stopped) timer = setTimeout(again, pauseMs);
  }
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

/**
 * Requests that are on their way still need an answer: for this long everything new is answered 503 with
 * `Connection: close`, in milliseconds.
 */
const GRACE = 250;

async function shutDown(server: HttpServer, commits: GroupCommit, timeoutMs: number): Promise<void> {
  const grace = Math.min(GRACE, timeoutMs / 4);
  const drained = commits.drain(timeoutMs / 2);
  await Bun.sleep(grace);
  await Promise.all([drained, server.stop(timeoutMs - grace)]);
}
