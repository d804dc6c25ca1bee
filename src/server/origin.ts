import type { Config } from "../settings/settings.ts";

/**
 * The origin of a server for clients on its machine: scheme, host and port.
 *
 * @example
 * ```ts
 * originOf({ host: "::", port: 3000, tls: undefined }); // "http://[::1]:3000"
 * ```
 */
export function originOf({ host, port, tls }: Pick<Config, "host" | "port" | "tls">): string {
  return `${tls ? "https" : "http"}://${inBrackets(connectable(host))}:${port}`;
}

/**
 * Clients cannot connect to the unspecified address (RFC 4291 section 2.5.2): loopback replaces it.
 */
function connectable(hostname: string): string {
  return { "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1" }[hostname] ?? hostname;
}

/** An IPv6 address beside a port has brackets (RFC 3986, section 3.2.2). */
export function inBrackets(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
