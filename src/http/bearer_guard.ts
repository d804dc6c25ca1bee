import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import type { Authenticate, Verdict } from "../auth/authenticate.ts";
import { PlantStoreError } from "../errors.ts";
import type { Scope } from "../scopes.ts";

/**
 * Guards every route that an app registers after it: a request passes only with a bearer token that `authenticate`
 * accepts (RFC 6750). It runs before validation, so a caller without a token learns nothing about the body it sent. To be used
 * once in an app: the bearer plugin reads the header where it comes first.
 *
 * @throws {PlantStoreError} `missing_credentials` or `invalid_credentials`, into the request it refuses.
 */
export function bearerGuard(authenticate: Authenticate) {
  const guard = new Elysia({ name: "bearer-guard" });
  guard.onTransform({ as: "global" }, function normalizeCredentials({ headers }) {
    headers["authorization"] = normalizeAuthorization(headers["authorization"]);
  });
  guard.use(bearer());
  // Elysia guesses from a hook's text whether it has to be awaited; it waits for what is called behind a `return`.
  guard.derive({ as: "global" }, function authenticateBearer(context) {
    const { bearer: token = "" } = context as { bearer?: string };
    return requireAccepted(authenticate(token));
  });
  return guard;
}

/**
 * Makes a route's `transform`: behind the guard, it lets only credentials with this scope pass (RFC 6750, section 3.1).
 *
 * @throws {PlantStoreError} `insufficient_scope`, into the request it refuses.
 */
export function requireScope(scope: Scope) {
  const message = `the token does not have the scope "${scope}"`;
  return function checkScope(context: object): void {
    const { scopes } = context as AcceptedVerdict;
    if (!scopes.has(scope)) throw new PlantStoreError("insufficient_scope", message, { reason: `no scope "${scope}"` });
  };
}

type AcceptedVerdict = Extract<Verdict, { ok: true }>;

/** A promise only where there is one already: a cached token needs none. */
function requireAccepted(verdict: Verdict | Promise<Verdict>): AcceptedVerdict | Promise<AcceptedVerdict> {
  if (verdict instanceof Promise) return verdict.then(requireAccepted);
  if (!verdict.ok) throw invalidCredentials(verdict.reason);
  return verdict;
}

/**
 * RFC 9110, section 11.4 (the scheme compares without case) and RFC 6750, section 2.1 (the token's characters). The
 * bearer plugin wants exactly `Bearer `, and looks into the query where the header has none: it never gets that far.
 * Two Authorization headers arrive joined by a comma, which is in no token.
 */
const CREDENTIALS = /^bearer +([\w\-.~+/]+=*)$/i;

function normalizeAuthorization(authorization: string | undefined): string {
  if (authorization === undefined) throw new PlantStoreError("missing_credentials");
  const token = CREDENTIALS.exec(authorization)?.[1];
  if (token === undefined) throw invalidCredentials("malformed");
  return `Bearer ${token}`;
}

/** The same response for every kind of bad credentials: what is wrong with them is for the log only. */
function invalidCredentials(reason: string): PlantStoreError {
  return new PlantStoreError("invalid_credentials", undefined, { reason });
}
