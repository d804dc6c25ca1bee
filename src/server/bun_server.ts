import { CommandError, reasonOf } from "../errors.ts";
import type { Certificate } from "./tls_files.ts";

/** The two functions that make responses. */
export interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Makes the response where `fetch` threw. */
  readonly error: (cause: unknown) => Response;
}

/** How and where Bun listens. */
export interface BunServerOptions extends Handlers {
  readonly hostname: string;
  readonly port: number;
  readonly certificate: Certificate | undefined;
}

/**
 * How long a connection may be idle, or take for a whole body, in seconds. Bun allows 12 seconds for the headers. With
 * both limits, and a deadline for every response, no connection stays open without end.
 */
export const IDLE_TIMEOUT_S = 30;

/** A server of Bun. */
export type BunServer = ReturnType<typeof serve>;

/** The cipher suites of TLS 1.2 with forward secrecy (RFC 7525 section 4.2); those of TLS 1.3 all have it. */
const CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20";

/**
 * Starts listening.
 *
 * @throws {CommandError} If the address is in use or not one of this machine's, or the certificate cannot be used.
 */
export function serve({ hostname, port, certificate, fetch, error }: BunServerOptions, { reusePort = false } = {}) {
  try {
    return Bun.serve({
      fetch,
      error,
      hostname,
      port,
      idleTimeout: IDLE_TIMEOUT_S,
      development: false,
      // With it, a second server on the port would start and share the traffic silently.
      reusePort,
      // The app counts bytes itself: its 413 has a body, and comes after the check of the credentials.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
      ...(certificate && { tls: { cert: certificate.cert, key: certificate.key, ciphers: CIPHERS } }),
    });
  } catch (cause) {
    throw new CommandError(`Cannot listen on ${hostname}:${port}: ${reasonOf(cause)}`, { cause });
  }
}
