import { withDeadline } from "../async/deadline.ts";
import { CommandError, ConfigError, reasonOf } from "../errors.ts";
import type { Config } from "../settings/settings.ts";
import { readSecretFile } from "../settings/secret_files.ts";

/** The two functions that make responses. */
export interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Makes the response if `fetch` threw. */
  readonly error: (cause: unknown) => Response;
}

/** What the HTTP server needs of the configuration. */
export type HttpServerOptions = Pick<Config, "host" | "port" | "tls" | "maxBodyBytes">;

/**
 * How long a connection may be idle, or take for a whole body, in seconds. Bun allows 12 seconds for the headers. With
 * both limits, and a deadline for every response, no connection stays open without end.
 */
const IDLE_TIMEOUT_S = 30;

/** The cipher suites of TLS 1.2 with forward secrecy (RFC 7525 section 4.2); those of TLS 1.3 all have it. */
const CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20";

/** The server of HTTP, and of HTTPS if the configuration names a certificate. */
export class HttpServer {
  readonly #options: HttpServerOptions;
  /** What listens; after a stop, what did. */
  #current: BunServer | undefined;
  /** Listens again, as before but with a new certificate. */
  #listen: (certificate: Certificate) => void = () => {};
  /** What was stopped, until its last request in flight has its response. */
  readonly #draining = new Set<BunServer>();
  #received = 0;
  #isStopped = false;

  constructor(options: HttpServerOptions) {
    this.#options = options;
  }

  /**
   * Starts listening.
   *
   * @returns The server's origin, as a client on this machine would write it: scheme, host and port.
   * @throws {ConfigError} If the TLS files cannot be used.
   * @throws {CommandError} If the address is in use or not one of this machine's.
   */
  async listen({ fetch, error }: Handlers): Promise<string> {
    const { host, port, tls, maxBodyBytes } = this.#options;
    const counted = (request: Request) => {
      this.#received++;
      return fetch(request);
    };
    const certificate = tls && (await readCertificate(tls));
    this.#current = serve({ host, port, certificate, maxBodyBytes }, { fetch: counted, error });
    const bound = { host: this.#current.hostname ?? host, port: this.#current.port ?? port };
    // Port 0 took a free one, which is the server's from now on.
    this.#listen = (renewed) => {
      this.#current = serve({ host, port: bound.port, certificate: renewed, maxBodyBytes }, { fetch: counted, error });
    };
    return `${tls ? "https" : "http"}://${connectable(bound.host)}:${bound.port}`;
  }

  /** How many requests it has received. */
  received(): number {
    return this.#received;
  }

  /** The address of the peer that sent a request, perhaps a proxy; `undefined` if its connection is closed. */
  peerOf(request: Request): string | undefined {
    // A server that listens on IPv6 has the addresses of IPv4 mapped (RFC 4291, section 2.5.5.2).
    return this.#current?.requestIP(request)?.address.replace(/^::ffff:(?=\d+\.)/i, "");
  }

  /** Whether requests are in flight on connections that end with their next response. */
  isDraining(): boolean {
    return this.#draining.size > 0;
  }

  /**
   * Reads the TLS files again, stops listening, and listens with the new certificate. Requests in flight get their
   * responses; idle connections are closed.
   *
   * @returns The new certificate; nothing without HTTPS, and on a server that does not listen.
   * @throws {ConfigError} If the files cannot be used: then nothing has changed.
   * @throws {CommandError} If it cannot listen again.
   */
  async reloadCertificate(): Promise<Certificate | undefined> {
    const { tls } = this.#options;
    if (tls === undefined) return undefined;
    const certificate = await readCertificate(tls);
    if (this.#isStopped || this.#current === undefined) return undefined;
    this.#drain(this.#current);
    this.#listen(certificate);
    return certificate;
  }

  /**
   * Stops listening, and resolves once every request in flight has its response; after `timeoutMs` milliseconds the
   * connections that are left are closed.
   */
  async stop(timeoutMs: number): Promise<void> {
    this.#isStopped = true;
    if (this.#current !== undefined) this.#drain(this.#current);
    await Promise.all(Array.from(this.#draining, (server) => stop(server, timeoutMs)));
  }

  #drain(server: BunServer): void {
    this.#draining.add(server);
    void server.stop().then(() => this.#draining.delete(server));
  }
}

type BunServer = ReturnType<typeof serve>;

interface ServeOptions {
  readonly host: string;
  readonly port: number;
  readonly certificate: Certificate | undefined;
  readonly maxBodyBytes: number;
}

function serve({ host, port, certificate, maxBodyBytes }: ServeOptions, handlers: Handlers) {
  try {
    return Bun.serve({
      ...handlers,
      hostname: host,
      port,
      idleTimeout: IDLE_TIMEOUT_S,
      development: false,
      // With it, a second server on the port would start and share the traffic silently.
      reusePort: false,
      // A second line behind the app's own limit, whose 413 has a body and comes after the check of the credentials.
      // Bun's has none and comes before it: it is far above, so that clients rarely see it.
      maxRequestBodySize: Math.max(4 * maxBodyBytes, 2 ** 20),
      ...(certificate && { tls: { cert: certificate.cert, key: certificate.key, ciphers: CIPHERS } }),
    });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new CommandError(`Cannot listen on ${host}:${port}: ${ADVICE[String(code)] ?? reasonOf(cause)}`, { cause });
  }
}

const ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use; choose another with --port",
  EADDRNOTAVAIL: "this machine does not have that address; choose another with --host",
};

/** A server that was stopped may be stopped again. */
async function stop(server: BunServer, timeoutMs: number): Promise<void> {
  await withDeadline(server.stop(), timeoutMs, () => {});
  await server.stop(true);
}

/** No client can connect to the unspecified address (RFC 4291 section 2.5.2): loopback takes its place. */
function connectable(hostname: string): string {
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1" }[hostname] ?? hostname;
  return host.includes(":") ? `[${host}]` : host;
}

/** A certificate and its key, checked. */
export interface Certificate {
  /** PEM, with the certificates between it and the root. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  /** When it expires. */
  readonly expires: Date;
}

async function readCertificate({ certFile, keyFile }: NonNullable<Config["tls"]>): Promise<Certificate> {
  const cert = await readSecretFile("TLS_CERT_FILE", certFile);
  const key = await readSecretFile("TLS_KEY_FILE", keyFile);
  // A start without HTTPS does not wait for them.
  const [{ X509Certificate }, { createSecureContext }] = await Promise.all([import("node:crypto"), import("node:tls")]);
  try {
    createSecureContext({ cert, key });
    return { cert, key, expires: new X509Certificate(cert).validToDate };
  } catch (cause) {
    const files = `TLS_CERT_FILE "${certFile}" with TLS_KEY_FILE "${keyFile}"`;
    throw new ConfigError(`Cannot use ${files}: ${reasonOf(cause)}`, { cause });
  }
}
