import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";

import { withDeadline } from "../async/timers.ts";
import type { Authenticate, Caller, Verdict } from "../auth/authenticate.ts";
import { PlantStoreError } from "../errors.ts";
import type { Access } from "./paths.ts";

/**
 * Guards every route registered after it, except public ones. A request needs a bearer token that
 * `authenticate` accepts, with the scope that the table of paths names (RFC 6750). The guard runs
 * before validation, so a caller without a token learns nothing about the body it sent. Use it once
 * in an app: the bearer plugin reads the header only where it is registered first.
 *
 * @param exchanges The exchange of each request. The guard sets the caller in it.
 * @throws {PlantStoreError} `missing_credentials`, `invalid_credentials` or `insufficient_scope`.
 */
export function bearerGuard(authenticate: Authenticate, exchanges: Exchanges) {
  // Elysia guesses from a hook's source text whether to await it: it awaits a call after a
  // `return`. It copies a hook's result into the context, which costs more than the check: so this
  // hook resolves to `undefined`.
  return new Elysia({ name: "bearer-guard" })
    .decorate(NO_QUERY)
    .use(bearer())
    .onTransform({ as: "global" }, function authenticateBearer(context) {
      const {
        headers,
        request,
        bearer: found,
      } = context as typeof context & { readonly bearer?: string };
      return requireAccess(exchanges.get(request), () =>
        authenticate(tokenOf(headers["authorization"], found)),
      );
    });
}

/**
 * The bearer plugin reads `query`. Elysia detects that from the plugin's source text, and then
 * parses the query. In minified text it does not: a request without credentials would be an
 * internal error.
 */
const NO_QUERY: { readonly [name: string]: unknown } = { query: {} };

/** The facts about a request that the app and the guard share. */
export interface Exchange {
  /** The access that the operation requires. */
  readonly access: Access;
  /** The bearer of the token, once it is accepted. */
  caller: Caller | undefined;
}

/** The exchange of each request. A request that is over is forgotten. */
export type Exchanges = Pick<WeakMap<Request, Exchange>, "get" | "set">;

/**
 * How long `authenticate` may take, in milliseconds: longer than a fetch of a provider's keys
 * takes.
 */
const TIMEOUT_MS = 10_000;

/**
 * Requires an accepted token with the scope. Returns a promise only if `authenticate` does: a
 * cached token needs none.
 */
function requireAccess(
  exchange: Exchange | undefined,
  authenticate: () => Verdict | Promise<Verdict>,
): void | Promise<void> {
  if (exchange?.access === "public") return undefined;

  const verdict = authenticate();
  if (!(verdict instanceof Promise)) return requireAccepted(verdict, exchange);

  const onTimeout = () => {
    throw new PlantStoreError(
      "queue_full",
      "the token was not validated in time; send the request again later",
      { reason: "not validated in time" },
    );
  };
  return withDeadline(verdict, TIMEOUT_MS, onTimeout).then((settled) =>
    requireAccepted(settled, exchange),
  );
}

function requireAccepted(verdict: Verdict, exchange: Exchange | undefined): void {
  if (!verdict.ok) throw invalidCredentials(verdict.reason);
  if (exchange !== undefined) exchange.caller = verdict;

  const scope = exchange?.access;
  if (scope === undefined || scope === "public" || !verdict.scopes.has(scope)) {
    // RFC 6750, section 3.1.
    const { lacks = { what: `the required scope "${scope}"`, scope } } = verdict;
    const reason = `the token does not have ${lacks.what}`;
    throw new PlantStoreError("insufficient_scope", reason, { reason, scope: lacks.scope });
  }
}

/**
 * Credentials: RFC 9110, section 11.4 (the scheme ignores case), and RFC 6750, section 2.1 (the
 * characters of a token). Two Authorization headers arrive joined by a comma, which no token has.
 */
const CREDENTIALS = /^bearer +([\w\-.~+/]+=*)$/i;

/** Credentials of this scheme, even malformed ones: the response to those of another scheme has no error code. */
const BEARER = /^bearer(?:[ \t]|$)/i;

/**
 * Credentials as nearly all clients send them: this test costs a quarter of extracting the token.
 */
const USUAL_CREDENTIALS = /^Bearer [\w\-.~+/]+=*$/;

/**
 * Returns the token of the header. Uses the bearer plugin's result only after exactly `Bearer `:
 * otherwise the plugin takes a token from the query, which this service does not accept.
 */
function tokenOf(authorization: string | undefined, found: string | undefined): string {
  if (authorization === undefined) throw new PlantStoreError("missing_credentials");
  const isUsual = USUAL_CREDENTIALS.test(authorization);
  const token = isUsual ? found : CREDENTIALS.exec(authorization)?.[1];
  if (token !== undefined) return token;

  if (BEARER.test(authorization)) throw invalidCredentials("malformed");
  throw new PlantStoreError("missing_credentials", undefined, { reason: "another scheme" });
}

/** Returns the same error for all invalid credentials: only the log has the reason. */
function invalidCredentials(reason: string): PlantStoreError {
  return new PlantStoreError("invalid_credentials", undefined, { reason });
}
