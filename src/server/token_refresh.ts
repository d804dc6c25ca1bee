import type { Logger } from "@logtape/logtape";

import { repeat } from "../async/timers.ts";
import type { TokenCache } from "../auth/token_cache.ts";

/** The parts of a service: a timer that is added to them ends with the service. */
export type Parts = Pick<AsyncDisposableStack, "use">;

/**
 * How often to refresh the token cache, in milliseconds: other processes create and revoke tokens.
 * Within `TOKENS_MAX_AGE_MS`, reading the revision may hang once until its deadline, and the next
 * refresh can still succeed.
 */
const REFRESH_MS = 1_000;

/** How often to write uses, in milliseconds. */
const WRITE_USES_MS = 2_000;

/**
 * Refreshes the token cache, and calls `writeUses`, again and again. Reading revocations depends
 * neither on writing uses, nor on how long that takes.
 */
export function keepFresh(
  tokens: TokenCache,
  writeUses: () => Promise<void>,
  log: Logger,
  parts: Parts,
): void {
  // Retries a failure at once: it closed the connection that hung, and another one may work.
  const refresh = () => tokens.refresh().catch(() => tokens.refresh());
  const refreshOrWarn = () =>
    refresh().catch((cause) => log.warning("Cannot reload tokens", { cause }));

  parts.use(repeat(REFRESH_MS, refreshOrWarn));
  parts.use(repeat(WRITE_USES_MS, writeUses));
}
