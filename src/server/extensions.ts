import type { Config } from "../settings/settings.ts";
import type { Extension, StartingService, Wrappable } from "./extension.ts";
import { JWTS } from "./jwt_provider.ts";
import { TRACING } from "./tracing_start.ts";

/** What the service has beyond what it needs, in the order of their start. */
export const EXTENSIONS: readonly Extension[] = [
  // Each wraps what those above it have wrapped.
  JWTS,
  TRACING,
];

/**
 * Starts the extensions, one after the other.
 *
 * @returns A function that wraps a part of the service, before its first use.
 * @throws {ConfigError} If a file or a variable of one cannot be used.
 */
export async function startExtensions(config: Config, service: StartingService) {
  const started = await Array.fromAsync(EXTENSIONS, ({ start }) => start(config, service));

  return <Part extends keyof Wrappable>(part: Part, inner: Wrappable[Part]): Wrappable[Part] =>
    started.reduce((wrapped, wrappers) => wrappers[part]?.(wrapped) ?? wrapped, inner);
}
