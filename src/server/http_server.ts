import { eventLoopTurn, pause, withDeadline } from "../async/timers.ts";
import { CommandError, ConfigError, reasonOf } from "../errors.ts";
import { readSecretFile } from "../settings/secret_files.ts";
import type { Config } from "../settings/settings.ts";
import { forwardedFor, unmapped } from "./forwarded.ts";

/** The two functions that make responses. */
interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Makes the response if `fetch` throws. */
  readonly error: (cause: unknown) => Response;
}

/** The settings of the HTTP server. */
type HttpServerOptions = Pick<Config, "host" | "port" | "tls" | "trustProxy" | "requestTimeoutMs">;

/**
 * How long a connection may be idle, in seconds. Proxies keep idle connections for less (Caddy 120,
 * Go 90, nginx and AWS's load balancers 60). The proxy must close first, or its next request fails
 * on a closed connection. A stalled body has the same timeout. Bun allows 12 seconds for the
 * headers.
 */
const IDLE_TIMEOUT_S = 130;

/**
 * How much longer a connection may be idle than a response may take, in seconds: Bun counts a
 * connection that waits for its response as idle.
 */
const GRACE_S = 10;

/** How long a server that stops waits for further requests, in milliseconds. */
const QUIET_MS = 250;

/**
 * The cipher suites of TLS 1.2 with forward secrecy (RFC 7525 section 4.2). All cipher suites of
 * TLS 1.3 have it.
 */
const CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20";

/** The server of HTTP, or of HTTPS if the configuration names a certificate. */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #stopping: AbortSignal;
  /** The newest certificate; `undefined` without HTTPS. */
  #certificate: Certificate | undefined;
  /** The server that listens, or did before the stop. */
  #current: BunServer | undefined;
  /**
   * Listens again, as before but with the newest certificate; `undefined` if it does not listen.
   */
  #listen: (() => unknown) | undefined;
  /** Stopped servers with requests in flight. */
  readonly #draining = new Set<BunServer>();
  /** When the newest of them stopped, by `performance.now()`. */
  #drainedAt = 0;
  #received = 0;

  /** @param stopping Aborted when the service has to stop: from then on, responses close connections. */
  constructor(options: HttpServerOptions, stopping: AbortSignal) {
    this.#options = options;
    this.#stopping = stopping;
  }

  /**
   * Reads the TLS files, if the configuration names any. Call it before {@linkcode listen}.
   *
   * @throws {ConfigError} If they cannot be used: then nothing changes.
   */
  async loadCertificate(): Promise<void> {
    const { tls } = this.#options;
    if (tls !== undefined) this.#certificate = await readCertificate(tls);
  }

  /**
   * Starts listening.
   *
   * @returns The origin of the server for clients on this machine: scheme, host and port.
   * @throws {PortError} If a program listens there, or the user may not use the port.
   * @throws {CommandError} If this machine does not have the address.
   */
  listen({ fetch, error }: Handlers): string {
    const { host, tls } = this.#options;
    const counted = (request: Request) => {
      this.#received++;
      return fetch(request);
    };

    const listen = (port: number) => {
      const handlers = { fetch: counted, error };
      return (this.#current = startServer({ ...this.#options, port }, this.#certificate, handlers));
    };

    const { hostname = host, port = this.#options.port } = listen(this.#options.port);
    // Port 0 selected a free port: keep it.
    this.#listen = () => listen(port);

    return `${tls ? "https" : "http"}://${inBrackets(connectable(hostname))}:${port}`;
  }

  /**
   * Resolves once no request has arrived and no response has left for {@linkcode QUIET_MS}. After a
   * response, a client may send another request on the same connection.
   *
   * @param limitMs How long to wait at most, in milliseconds.
   */
  async untilQuiet(limitMs: number): Promise<void> {
    const deadline = performance.now() + limitMs;
    let before: number;

    do {
      before = this.#activity();
      await pause(Math.min(QUIET_MS, limitMs));

      // Timers run before sockets are read: on a busy machine, requests may be waiting in the
      // sockets.
      await eventLoopTurn();
      await eventLoopTurn();
    } while (this.#activity() !== before && performance.now() < deadline);
  }

  /** How many requests have arrived, plus how many responses have left. */
  #activity(): number {
    const servers = new Set([this.#current, ...this.#draining]);
    let pending = 0;

    for (const server of servers) pending += server?.pendingRequests ?? 0;

    return 2 * this.#received - pending;
  }

  // The app calls the next two as plain functions: arrow functions keep `this`.

  /**
   * Returns the client address of a request: as the trusted proxy names it, or the peer's;
   * `undefined` if the connection is closed.
   */
  readonly clientAddress = (request: Request): string | undefined => {
    const { trustProxy } = this.#options;
    const named = trustProxy === "off" ? undefined : forwardedFor(request.headers, trustProxy);
    if (named !== undefined) return named;

    // A server that listens on IPv6 gets mapped IPv4 addresses.
    const { address } = this.#current?.requestIP(request) ?? {};
    return address === undefined ? undefined : unmapped(address);
  };

  /**
   * Whether the connection of a request has to close after its response: the service is stopping,
   * or a new certificate has replaced the connection's server.
   *
   * @param arrivedAt When the request arrived, by `performance.now()`.
   */
  readonly isShuttingDown = (arrivedAt: number): boolean =>
    this.#stopping.aborted || arrivedAt < this.#drainedAt;

  /**
   * Reloads the TLS files: stops listening, and listens again with the new certificate (Bun's own
   * `reload` keeps the old one). Requests in flight get their responses. Idle connections are
   * closed: requests that arrive on them meanwhile are lost.
   *
   * @returns When the new certificate expires; `undefined` without HTTPS, or if the server does not
   *   listen.
   * @throws {ConfigError} If the files cannot be used: then nothing changes.
   * @throws {CommandError} If it cannot listen again.
   */
  async reloadCertificate(): Promise<Date | undefined> {
    await this.loadCertificate();
    if (this.#listen === undefined) return undefined;
    this.#drain();
    this.#listen();
    return this.#certificate?.expires;
  }

  /** When the certificate that is served expires; `undefined` without HTTPS. */
  certificateExpires(): Date | undefined {
    return this.#certificate?.expires;
  }

  /**
   * Stops listening, and resolves once every request in flight has its response. Closes the
   * remaining connections after `timeoutMs` milliseconds.
   */
  async stop(timeoutMs: number): Promise<void> {
    this.#listen = undefined;
    this.#drain();
    const stopping = Array.from(this.#draining, async (server) => {
      await withDeadline(server.stop(), timeoutMs, () => {});
      await server.stop(true);
    });
    await Promise.all(stopping);
  }

  #drain(): void {
    const server = this.#current;
    if (server === undefined) return;
    this.#draining.add(server);
    this.#drainedAt = performance.now();
    void server.stop().then(() => this.#draining.delete(server));
  }
}

/**
 * Clients cannot connect to the unspecified address (RFC 4291 section 2.5.2): loopback replaces it.
 */
function connectable(hostname: string): string {
  return { "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1" }[hostname] ?? hostname;
}

/** An IPv6 address beside a port has brackets (RFC 3986, section 3.2.2). */
function inBrackets(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

type BunServer = ReturnType<typeof startServer>;

/** Starts Bun's HTTP server. Throws a {@linkcode CommandError} if it cannot listen. */
function startServer(
  { host, port, requestTimeoutMs }: HttpServerOptions,
  certificate: Certificate | undefined,
  handlers: Handlers,
) {
  try {
    return Bun.serve({
      ...handlers,
      hostname: host,
      port,
      idleTimeout: Math.max(IDLE_TIMEOUT_S, Math.ceil(requestTimeoutMs / 1_000) + GRACE_S),
      development: false,

      // Otherwise a second server could start on the port, and silently share the traffic.
      reusePort: false,

      // The app counts every body, after it has checked the credentials. Bun's own 413 has no body
      // and comes before that check: disable its limit. Memory is safe, because Bun reads no
      // further than the app does.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
      ...(certificate && {
        tls: { cert: certificate.cert, key: certificate.key, ciphers: CIPHERS },
      }),
    });
  } catch (cause) {
    const refused = `Cannot listen on ${inBrackets(host)}:${port}`;
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EADDRINUSE" && hasAddress(host))
      throw new PortError(`${refused}: the port is in use; choose another with --port`, { cause });
    if (code === "EACCES")
      throw new PortError(
        `${refused}: this port needs root or CAP_NET_BIND_SERVICE; choose another with --port`,
        { cause },
      );
    throw new CommandError(
      `${refused}: this machine does not have that address; choose another with --host`,
      { cause },
    );
  }
}

/** Whether this machine has an address: for any other, Bun returns the code of an earlier error. */
function hasAddress(hostname: string): boolean {
  try {
    Bun.listen({ hostname, port: 0, socket: { data() {} } }).stop();
    return true;
  } catch {
    return false;
  }
}

/** A program listens on the port, or the user may not use it. */
export class PortError extends CommandError {}

type Certificate = Awaited<ReturnType<typeof readCertificate>>;

/**
 * Reads a certificate with its chain, and its key, and checks that the key is the certificate's.
 */
async function readCertificate({ certFile, keyFile }: NonNullable<Config["tls"]>) {
  const cert = await readSecretFile("TLS_CERT_FILE", certFile);
  const key = await readSecretFile("TLS_KEY_FILE", keyFile);
  // Loaded here, so that a start without HTTPS does not wait for them.
  const [{ X509Certificate }, { createSecureContext }] = await Promise.all([
    import("node:crypto"),
    import("node:tls"),
  ]);

  try {
    // In arrays: an empty string would otherwise count as absent.
    createSecureContext({ cert: [cert], key: [key] });
    return { cert, key, expires: new X509Certificate(cert).validToDate };
  } catch (cause) {
    const files = `TLS_CERT_FILE "${certFile}" with TLS_KEY_FILE "${keyFile}"`;
    throw new ConfigError(`Cannot use ${files}: ${reasonOf(cause)}`, { cause });
  }
}
