import { handOverPort } from "./port_handover.ts";
import { withDeadline } from "../async/deadline.ts";
import { type BunServer, type BunServerOptions, type Handlers, IDLE_TIMEOUT_S, serve } from "./bun_server.ts";
import type { Config } from "../settings/config.ts";
import { CommandError } from "../errors.ts";
import { type Certificate, readCertificate } from "./tls_files.ts";

/** A server that listens. */
export interface HttpServer {
  /** Its origin, as a client on this machine would write it: scheme, host and port. */
  readonly address: string;
  /** How many requests it has received. */
  received(): number;
  /** The address of who sent a request, a proxy perhaps; `undefined` when its connection is closed. */
  peerOf(request: Request): string | undefined;
  /**
   * Reads the TLS files again, for new connections: open ones keep the old certificate, and are closed after their next
   * response. Resolves to the new certificate, or to nothing without HTTPS.
   *
   * @throws {CommandError} If the files cannot be used, or a new socket cannot listen: the old certificate stays.
   */
  renewCertificate(): Promise<Certificate | undefined>;
  /** Stops listening for a while, and closes idle connections. Requests in flight get their responses. */
  pause(): void;
  /**
   * Listens again.
   *
   * @throws {CommandError} If that is not possible now.
   */
  resume(): void;
  /**
   * Stops listening, and resolves once every request in flight has its response; after `timeoutMs` milliseconds the
   * connections that are left are closed.
   */
  stop(timeoutMs: number): Promise<void>;
}

/**
 * Starts listening.
 *
 * @throws {CommandError} If the address is in use or not one of this machine's, or the TLS files cannot be used.
 */
export async function listen({ host, port, tls }: Config, handlers: Handlers): Promise<HttpServer> {
  return new BunHttpServer({
    ...handlers,
    hostname: host,
    port,
    tls,
    certificate: tls && (await readCertificate(tls)),
  });
}

interface Options extends BunServerOptions, Pick<Config, "tls"> {}

class BunHttpServer implements HttpServer {
  readonly address: string;
  #options: Options;
  /** What listens; during a pause, what did. */
  #current: BunServer;
  #isPaused = false;
  #received = 0;
  /** What listened with the certificate before, while its idle connections are open. */
  #former: { readonly server: BunServer; readonly timer: ReturnType<typeof setTimeout> } | undefined;
  /** What was stopped, until its last request in flight has its response. */
  readonly #draining = new Set<BunServer>();

  constructor(options: Options) {
    const fetch = (request: Request) => {
      this.#received++;
      return options.fetch(request);
    };
    this.#current = serve({ ...options, fetch });
    const { hostname = options.hostname, port = options.port } = this.#current;
    // Of port 0 the system made a free one, which it is from now on.
    this.#options = { ...options, fetch, port };
    this.address = `${options.tls ? "https" : "http"}://${connectable(hostname)}:${port}`;
  }

  received(): number {
    return this.#received;
  }

  peerOf(request: Request): string | undefined {
    // A server that listens on IPv6, too, has the addresses of IPv4 mapped (RFC 4291, section 2.5.5.2).
    return this.#current.requestIP(request)?.address.replace(/^::ffff:(?=\d+\.)/i, "");
  }

  async renewCertificate(): Promise<Certificate | undefined> {
    const { tls } = this.#options;
    if (tls === undefined) return undefined;
    const certificate = await readCertificate(tls);
    this.#options = { ...this.#options, certificate };
    if (!this.#isPaused) this.#replace();
    return certificate;
  }

  pause(): void {
    this.#isPaused = true;
    this.#drainFormer();
    this.#drain(this.#current);
  }

  resume(): void {
    this.#current = serve(this.#options);
    this.#isPaused = false;
  }

  async stop(timeoutMs: number): Promise<void> {
    // For good: a certificate that is still being read must not make it listen again.
    this.pause();
    await Promise.all(Array.from(this.#draining, (server) => stop(server, timeoutMs)));
  }

  /** Bun cannot change the certificate of a server: another one takes its place. */
  #replace(): void {
    this.#drainFormer();
    const server = this.#current;
    this.#current = takeOver(server, this.#options);
    server.reload(closing(this.#options));
    // By then each of its connections had a response or was idle for too long.
    this.#former = { server, timer: setTimeout(() => this.#drainFormer(), (IDLE_TIMEOUT_S + 1) * 1_000) };
  }

  #drainFormer(): void {
    if (this.#former === undefined) return;
    clearTimeout(this.#former.timer);
    this.#drain(this.#former.server);
    this.#former = undefined;
  }

  #drain(server: BunServer): void {
    this.#draining.add(server);
    void server.stop().then(() => this.#draining.delete(server));
  }
}

/** Where the port cannot be handed over, connections are refused for a moment. */
function takeOver(server: BunServer, options: Options): BunServer {
  try {
    return handOverPort(options.port, () => serve(options, { reusePort: true }));
  } catch (error) {
    // Another socket could not listen either: the one that is there goes on.
    if (error instanceof CommandError) throw error;
    void server.stop();
    return serve(options);
  }
}

/** Responses that ask the client for a new connection (RFC 9112 section 9.6). */
function closing({ fetch, error }: Handlers) {
  return {
    async fetch(request: Request): Promise<Response> {
      const response = await fetch(request);
      response.headers.set("connection", "close");
      return response;
    },
    error,
  };
}

/** No client can connect to the unspecified address (RFC 4291 section 2.5.2): loopback takes its place. */
function connectable(hostname: string): string {
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1" }[hostname] ?? hostname;
  return host.includes(":") ? `[${host}]` : host;
}

/** A server that was stopped may be stopped again. */
async function stop(server: BunServer, timeoutMs: number): Promise<void> {
  await withDeadline(server.stop(), timeoutMs, () => {});
  await server.stop(true);
}
