import type { Logger } from "@logtape/logtape";

import { withAbort } from "../async/deadline.ts";
import { repeat } from "../async/timers.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { jwtAuthenticator } from "../auth/jwt.ts";
import { type TokenCache, tokenCache } from "../auth/token_cache.ts";
import type { TokenStore } from "../auth/token_store.ts";
import { toCommandError } from "../database/adapters.ts";
import { reasonOf } from "../errors.ts";
import { isLoopback } from "../settings/parsers.ts";
import type { Config } from "../settings/settings.ts";

/** Where the tokens are, and how long to wait for them. */
export interface LoadTokensOptions {
  /** Accepted without being stored. */
  readonly staticTokens: readonly string[];
  /** The name of the database in messages. */
  readonly database: string;
  readonly stop: AbortSignal;
}

/**
 * Reads the tokens of a database into a cache.
 *
 * @returns The cache; `undefined` if the server has to stop first.
 * @throws {CommandError} If they cannot be read.
 */
export function loadTokens(
  store: TokenStore,
  options: LoadTokensOptions,
): Promise<TokenCache | undefined> {
  const { staticTokens, database, stop } = options;
  const reading = tokenCache(store, { staticTokens }).catch((error) => {
    throw toCommandError(error, { action: "read the tokens", database });
  });
  return withAbort(reading, stop);
}

/** Accepts our own tokens, and the JWTs of an identity provider if one is set. */
export function authenticator(
  tokens: TokenCache,
  { jwt, jwtAlgorithms, jwtScope }: Config,
  log: Logger,
): Authenticate {
  if (jwt === undefined) return tokens.authenticate;

  const authenticateJwt = jwtAuthenticator({
    ...jwt,
    algorithms: jwtAlgorithms,
    scope: jwtScope,
    fetch: fetchKeys,
    // The message only: Bun puts the URL into the error, and its query may have a key.
    onKeysUnavailable: (cause) =>
      log.warning("Keys of the identity provider not read", { reason: reasonOf(cause) }),
  });

  return (token) => {
    const verdict = tokens.authenticate(token);
    // A signed JWT has three parts (RFC 7515, section 7.1).
    return verdict.ok || token.split(".", 4).length !== 3 ? verdict : authenticateJwt(token);
  };
}

/**
 * Fetches the keys of the provider. Whoever changes keys on their way can sign tokens. So
 * `NODE_TLS_REJECT_UNAUTHORIZED` does not disable the check of the provider's certificate. A
 * provider on this machine may use plain HTTP, and is reached without the proxy of `HTTP_PROXY`.
 * Others are reached through that proxy, which cannot change HTTPS.
 */
function fetchKeys(url: string, init: RequestInit): Promise<Response> {
  const direct = isLoopback(new URL(url)) ? { proxy: false as const } : {};
  return fetch(url, { ...init, ...direct, tls: { rejectUnauthorized: true } });
}

/**
 * How often to refresh the token cache, in milliseconds: other processes create and revoke tokens.
 */
const REFRESH_MS = 2_000;

/**
 * Refreshes the token cache, and calls `writeUses`, again and again. Reading revocations depends
 * neither on writing uses, nor on how long that takes.
 */
export function keepFresh(
  tokens: TokenCache,
  writeUses: () => Promise<void>,
  log: Logger,
): Disposable[] {
  // Retries a failure at once: it closed the connection that hung, and another one may work.
  const refresh = () => tokens.refresh().catch(() => tokens.refresh());
  const refreshOrWarn = () => refresh().catch((cause) => log.warning("Tokens not read", { cause }));

  return [repeat(REFRESH_MS, refreshOrWarn), repeat(REFRESH_MS, writeUses)];
}
