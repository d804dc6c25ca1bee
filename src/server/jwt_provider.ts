import type { Logger } from "@logtape/logtape";

import { repeat } from "../async/timers.ts";
import type { Authenticate, Verdict } from "../auth/authenticate.ts";
import { jwtAuthenticator } from "../auth/jwt/jwt.ts";
import { publicUrl } from "../auth/jwt/public_url.ts";
import { reasonOf } from "../errors.ts";
import { isLoopback } from "../settings/jwt_settings.ts";
import type { Config } from "../settings/settings.ts";
import type { Metric, Metrics } from "../telemetry/metrics.ts";
import { certificateFailure } from "../tls_failures.ts";

/** How often to check the age of the keys, in milliseconds. */
const REFRESH_MS = 1_000;

/**
 * Fetches the keys of the identity provider once, if one is set. A failure may be temporary.
 *
 * @returns Why the keys could not be fetched, as a sentence; `undefined` if they were.
 */
export async function providerFault({ jwt }: Config): Promise<string | undefined> {
  if (jwt === undefined) return undefined;

  let reason: string | undefined;
  await jwtAuthenticator({
    ...jwt,
    fetch: fetchKeys,
    onKeysUnavailable: (cause) => (reason = fetchFailure(cause, jwt.jwksUrl)),
  }).refreshKeys();
  return (
    reason && `Cannot fetch the identity provider's keys from ${publicUrl(jwt.jwksUrl)}: ${reason}`
  );
}

/** The parts of the service that validating JWTs needs. */
interface Service {
  readonly log: Logger;
  readonly metrics: Pick<Metrics, "register">;
  /** The service's resources: a timer added to them ends with the service. */
  readonly parts: Pick<AsyncDisposableStack, "use">;
}

/**
 * Accepts the JWTs of an identity provider beside the server's own tokens, if a provider is set.
 * Fetches the keys in the background, now and when they are old. So a wrong URL is logged before a
 * client is refused, and no token waits for a slow provider.
 */
export function acceptJwts(
  own: (token: string) => Verdict,
  { jwt, jwtAlgorithms, jwtScope, jwtSubjects }: Config,
  { log, metrics, parts }: Service,
): Authenticate {
  if (jwt === undefined) return own;

  const keys = watchKeys(jwt.jwksUrl, log);
  metrics.register(keys.metrics);
  const authenticateJwt = jwtAuthenticator({
    ...jwt,
    ...keys.events,
    algorithms: jwtAlgorithms,
    scope: jwtScope,
    subjects: jwtSubjects,
    fetch: fetchKeys,
  });
  void authenticateJwt.refreshKeys();
  parts.use(repeat(REFRESH_MS, authenticateJwt.refreshKeys));

  return (token) => {
    const verdict = own(token);
    return !verdict.ok && verdict.isForeign ? authenticateJwt(token) : verdict;
  };
}

/**
 * Logs when the provider's keys become unavailable, once for each reason, and when they are
 * available again. The metrics show whether the last fetch succeeded, and when one last did.
 */
function watchKeys(jwksUrl: URL, log: Logger) {
  let lastReason: string | undefined;
  let fetchedAt = 0;

  const events = {
    onKeysUnavailable(cause: unknown): void {
      const reason = fetchFailure(cause, jwksUrl);
      if (reason !== lastReason)
        log.warning("Cannot fetch the identity provider's keys", { reason });
      lastReason = reason;
    },

    onKeysFetched(): void {
      if (lastReason !== undefined) log.info("The identity provider's keys are available again");
      lastReason = undefined;
      fetchedAt = Date.now() / 1_000;
    },
  };

  const metrics = (): Metric[] => [
    {
      name: "plant_store_provider_keys_fetched_timestamp_seconds",
      help: "When the identity provider's keys were fetched last, since 1970 UTC; 0 if never",
      type: "gauge",
      value: fetchedAt,
    },
    {
      name: "plant_store_provider_keys_failed",
      help: "Whether the last attempt to fetch them failed: 1 or 0",
      type: "gauge",
      value: lastReason === undefined ? 0 : 1,
    },
  ];

  return { events, metrics };
}

/**
 * Returns why keys could not be fetched, for the log. Bun's messages quote the URL: its query is
 * removed here, because it may have a key. Their advice to programmers is cut.
 */
function fetchFailure(cause: unknown, jwksUrl: URL): string {
  if (cause instanceof Error && cause.name === "TimeoutError") return "it did not answer in time";

  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  const words = certificateFailure(code, UNTRUSTED) ?? FETCH_FAILURES.get(code);
  if (words !== undefined) return `${words} (${code})`;

  const text = reasonOf(cause)
    .replace(/https?:[^\s"']*/gi, (url) => publicUrl(url) ?? "the URL")
    .replace(/\. For more information.*/s, "");
  return jwksUrl.search === "" ? text : text.replaceAll(jwksUrl.search, "");
}

const UNTRUSTED = "its CA is unknown here, or it lacks an intermediate certificate";

/** Words for the codes of Bun's errors after a wrong URL or a network failure. */
const FETCH_FAILURES: ReadonlyMap<string, string> = new Map([
  ["ECONNREFUSED", "nothing listens there"],
  ["ENOTFOUND", "the name of its host cannot be resolved"],
  ["EAI_AGAIN", "the name of its host cannot be resolved"],
  ["ECONNRESET", "it closed the connection before its response was complete"],
  ["EPROTO", "the TLS handshake failed: that port may not speak TLS"],
  ["ERR_PROXY_TUNNEL", "the proxy refused to connect to it"],
]);

/**
 * Fetches the keys of the provider. An attacker who replaces keys in transit can sign tokens: so
 * `NODE_TLS_REJECT_UNAUTHORIZED` does not disable the check of the provider's certificate. A
 * provider on this machine may use plain HTTP, and is reached without the proxy of `HTTP_PROXY`.
 * Others are reached through that proxy, which cannot change HTTPS.
 */
function fetchKeys(url: string, init: RequestInit): Promise<Response> {
  const direct = isLoopback(new URL(url)) ? { proxy: false as const } : {};
  return fetch(url, { ...init, ...direct, tls: { rejectUnauthorized: true } });
}
