import { withDeadline } from "../deadline.ts";
import type { Config } from "./config.ts";
import { CommandError } from "./io.ts";

/** The two functions that make responses. */
export interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Makes the response where `fetch` threw. */
  readonly error: (cause: unknown) => Response;
}

/** A server that listens. */
export interface HttpServer {
  /** Its origin, as a client on this machine would write it: scheme, host and port. */
  readonly address: string;
  /**
   * Stops listening, and resolves once every request in flight has its response; after `timeoutMs` milliseconds the
   * connections that are left are closed.
   */
  stop(timeoutMs: number): Promise<void>;
}

/**
 * How long a connection may be idle, or take for a whole body, in seconds. Bun allows 12 seconds for the headers. With
 * both limits, and a deadline for every response, no connection stays open for ever.
 */
const IDLE_TIMEOUT_S = 30;

/**
 * Starts listening.
 *
 * @throws {CommandError} If the address is in use or not one of this machine's, or the TLS files cannot be used.
 */
export async function listen({ host, port, tls }: Config, handlers: Handlers): Promise<HttpServer> {
  const pem = tls && { cert: await readPem(tls.certFile), key: await readPem(tls.keyFile) };
  const server = serve(host, port, { ...handlers, ...(pem && { tls: pem }) });
  return {
    address: `${pem ? "https" : "http"}://${connectable(server.hostname ?? host)}:${server.port}`,
    stop: (timeoutMs) => stop(server, timeoutMs),
  };
}

async function readPem(path: string): Promise<string> {
  try {
    return await Bun.file(path).text();
  } catch (cause) {
    throw new CommandError(`Cannot read "${path}": ${messageOf(cause)}`, { cause });
  }
}

type Server = ReturnType<typeof serve>;

function serve(hostname: string, port: number, options: Handlers & { tls?: Bun.TLSOptions }) {
  try {
    return Bun.serve({
      ...options,
      hostname,
      port,
      idleTimeout: IDLE_TIMEOUT_S,
      development: false,
      // With it, a second server on the port would start and share the traffic silently.
      reusePort: false,
      // The app counts bytes itself: its 413 has a body, and comes after the check of the credentials.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    });
  } catch (cause) {
    throw new CommandError(`Cannot listen on ${hostname}:${port}: ${messageOf(cause)}`, { cause });
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Nobody can connect to the unspecified address (RFC 4291 section 2.5.2): loopback takes its place. */
function connectable(hostname: string): string {
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1" }[hostname] ?? hostname;
  return host.includes(":") ? `[${host}]` : host;
}

async function stop(server: Server, timeoutMs: number): Promise<void> {
  await withDeadline(server.stop(), timeoutMs, () => {});
  await server.stop(true);
}
