import { openDatabase } from "../adapters/sqlite/database.ts";
import { sqliteStore } from "../adapters/sqlite/store.ts";
import { sqliteTokens } from "../adapters/sqlite/tokens.ts";
import { swaggerUi } from "../adapters/swagger_ui.ts";
import { type AppOptions, createApp, fault } from "../app.ts";
import type { Config } from "../config.ts";
import { type GroupCommit, groupCommit } from "../group_commit.ts";
import { mintToken, type Sha256, tokenChecker, type TokenStore } from "../tokens.ts";
import { CommandError, type Io } from "./io.ts";

const sha256: Sha256 = (text) => Bun.SHA256.hash(text, new Uint8Array(32)) as Uint8Array;

/** `plant-store serve`: serves until `io.stop`, then answers what was accepted and closes the database. */
export async function serve(config: Config, io: Io): Promise<number> {
  const database = openDatabase(config.databasePath, { busyTimeoutMs: config.requestTimeoutMs });
  await using store = sqliteStore(database);
  const tokens = sqliteTokens(database);
  const plants = groupCommit(store, {
    queueLimit: config.queueLimit,
    timeoutMs: config.requestTimeoutMs,
    defer: (run) => void setImmediate(run),
  });
  const onFault: AppOptions["onFault"] = (cause, requestId) => io.stderr(`${requestId} ${Bun.inspect(cause)}\n`);
  let check = await checkerOf(tokens, config);
  const app = createApp({
    plants,
    probe: () => store.probe(),
    authenticate: (token) => check(token),
    maxBodyBytes: config.maxBodyBytes,
    docsFiles: config.docs ? swaggerUi : undefined,
    onFault,
  });
  const server = listen(config, app.fetch, (cause) => fault(cause, onFault));
  const address = addressOf(server);
  io.stderr(`Plant Store listens on ${address}${config.docs ? `, documentation at ${address}/swagger` : ""}\n`);
  if (await greet(tokens, config, address, io)) check = await checkerOf(tokens, config);
  await aborted(io.stop);
  io.stderr("Stopping: answering what was accepted\n");
  await shutDown(server, plants, config.shutdownTimeoutMs);
  return 0;
}

async function checkerOf(tokens: TokenStore, { authTokens }: Config) {
  const kept = await tokens.list();
  return tokenChecker([...kept.map(({ digest }) => digest), ...authTokens.map(sha256)], sha256);
}

/** How long a connection may be silent in the middle of something, in seconds. */
const IDLE_TIMEOUT = 30;

function listen(
  { host, port }: Config,
  fetch: (request: Request) => Response | Promise<Response>,
  onError: (cause: unknown) => Response,
) {
  try {
    return Bun.serve({
      hostname: host,
      port,
      fetch,
      idleTimeout: IDLE_TIMEOUT,
      development: false,
      // With it, a second server on the port would start and share the traffic silently.
      reusePort: false,
      // The app counts bytes itself: its 413 has a body, and comes after the credentials.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
      error: onError,
    });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CommandError(`Cannot listen on ${host}:${port}: ${reason}`, { cause });
  }
}

type Server = ReturnType<typeof listen>;

/** The address as a client on this machine would write it: "any address" is none to connect to. */
function addressOf({ hostname = "localhost", port }: Server): string {
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1" }[hostname] ?? hostname;
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** With no token anywhere nobody could call: makes one, or says in production how to. Resolves to whether it did. */
async function greet(tokens: TokenStore, config: Config, address: string, io: Io): Promise<boolean> {
  if (config.authTokens.length > 0 || (await tokens.list()).length > 0) return false;
  if (config.production) {
    io.stderr("No token is known, so every call will be answered 401: set AUTH_TOKENS\n");
    return false;
  }
  const token = mintToken();
  const made = await tokens.add({ name: "first-start", digest: sha256(token), createdAt: new Date() });
  if (made) io.stderr(welcome(token, address));
  return true;
}

function welcome(token: string, address: string): string {
  return `
No token is known, so here is one. It is shown only now; the database keeps its SHA-256:

  ${token}

Store a plant:

  curl -i ${address}/plants -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d '{"id": 1, "name": "Monstera deliciosa", "tag": "indoor"}'

`;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/**
 * Requests that are on their way still need an answer: for this long everything new is answered 503 with
 * `Connection: close`, in milliseconds.
 */
const GRACE = 250;

async function shutDown(server: Server, plants: GroupCommit, timeoutMs: number): Promise<void> {
  const timeout = Promise.withResolvers<void>();
  setTimeout(timeout.resolve, timeoutMs).unref();
  const drained = plants.drain();
  await Bun.sleep(GRACE);
  await Promise.race([Promise.all([drained, server.stop()]), timeout.promise]);
  await server.stop(true);
}
