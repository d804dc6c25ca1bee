import type { Logger } from "@logtape/logtape";
import { sha256 } from "../auth/sha256.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { jwtAuthenticator } from "../auth/jwt.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import type { Config } from "../settings/config.ts";
import { reasonOf } from "../errors.ts";

/**
 * Who may call: our own tokens, which are validated from memory, and the JWTs of an identity provider where one is set. A
 * token that is none of our own, and has the three parts of a JWT, is verified with the provider's keys.
 */
export function authenticator(tokens: TokenCache, { jwt, jwtAlgorithms, jwtScope }: Config, log: Logger): Authenticate {
  if (jwt === undefined) return tokens.authenticate;
  // Bun puts the URL into the error, and its query may hold a key.
  const onKeysUnavailable = (cause: unknown) =>
    log.warning("Keys of the identity provider not read", { reason: reasonOf(cause) });
  const options = { ...jwt, algorithms: jwtAlgorithms, scope: jwtScope, sha256, onKeysUnavailable };
  const authenticateJwt = jwtAuthenticator(options);
  return (token) => {
    const verdict = tokens.authenticate(token);
    return verdict.ok || token.split(".").length !== 3 ? verdict : authenticateJwt(token);
  };
}
