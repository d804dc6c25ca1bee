import type { Config } from "./config.ts";
import { CommandError } from "./io.ts";

/** What answers requests, whatever serves them. */
export interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Answers where `fetch` threw. */
  readonly error: (cause: unknown) => Response;
}

/** A server on its socket. */
export interface HttpServer {
  /** Its address, as a client on this machine would write it. */
  readonly address: string;
  /**
   * Stops listening, and resolves once every open request is answered; after `timeoutMs` milliseconds the connections
   * that are left are closed.
   */
  stop(timeoutMs: number): Promise<void>;
}

/**
 * How long a connection may be silent, or take for a whole body, in seconds. Bun gives headers 12 seconds by itself.
 * With that, and a deadline for every response, each connection ends.
 */
const IDLE_TIMEOUT = 30;

/**
 * Starts listening.
 *
 * @throws {CommandError} If the address is taken or none of this machine's, or the TLS files are of no use.
 */
export async function listen({ host, port, tls }: Config, handlers: Handlers): Promise<HttpServer> {
  const pem = tls && { cert: await readPem(tls.certFile), key: await readPem(tls.keyFile) };
  const server = serve(host, port, { ...handlers, ...(pem && { tls: pem }) });
  return {
    address: `${pem ? "https" : "http"}://${reachable(server.hostname ?? host)}:${server.port}`,
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
      idleTimeout: IDLE_TIMEOUT,
      development: false,
      // With it, a second server on the port would start and share the traffic silently.
      reusePort: false,
      // The app counts bytes itself: its 413 has a body, and comes after the credentials.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    });
  } catch (cause) {
    throw new CommandError(`Cannot listen on ${hostname}:${port}: ${messageOf(cause)}`, { cause });
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** "Any address" is none to connect to. */
function reachable(hostname: string): string {
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1" }[hostname] ?? hostname;
  return host.includes(":") ? `[${host}]` : host;
}

async function stop(server: Server, timeoutMs: number): Promise<void> {
  let timer: Timer | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  await Promise.race([server.stop(), timeout]);
  clearTimeout(timer);
  await server.stop(true);
}
