import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import { withDeadline } from "../async/deadline.ts";
import type { Authenticate, Scope, Verdict } from "../auth/authenticate.ts";
import { PlantStoreError } from "../errors.ts";

/** The scope that each path needs: a path that is not listed is refused. */
export type RequiredScopes = Readonly<Record<string, Scope>>;

/**
 * Guards every route that an app registers after it: a request passes only with a bearer token that `authenticate`
 * accepts, and that has the scope of the path (RFC 6750). It runs before validation, so a caller without a token learns
 * nothing about the body it sent. To be used once in an app: the bearer plugin reads the header where it comes first.
 *
 * @throws {PlantStoreError} `missing_credentials`, `invalid_credentials` or `insufficient_scope`, into the request it
 * refuses.
 */
export function bearerGuard(authenticate: Authenticate, requiredScopes: RequiredScopes) {
  const scopes = new Map(Object.entries(requiredScopes));
  const guard = new Elysia({ name: "bearer-guard" });
  guard.onTransform({ as: "global" }, function normalizeCredentials({ headers }) {
    headers["authorization"] = normalizeAuthorization(headers["authorization"]);
  });
  guard.use(bearer());
  // Elysia guesses from a hook's text whether it has to be awaited; it waits for what is called behind a `return`. What
  // a hook returns is copied into the context, which costs more than the check: so this one returns nothing.
  guard.onTransform({ as: "global" }, function authenticateBearer(context) {
    const { bearer: token = "", path } = context as { bearer?: string; path: string };
    return requireAccepted(authenticate(token), scopes.get(path));
  });
  return guard;
}

/** How long `authenticate` may take, in milliseconds: longer than a provider's keys. */
const TIMEOUT_MS = 10_000;

/** A promise only if there is one already: a cached token needs none. */
function requireAccepted(verdict: Verdict | Promise<Verdict>, scope: Scope | undefined): void | Promise<void> {
  if (verdict instanceof Promise) {
    return withDeadline(verdict, TIMEOUT_MS, notInTime).then((settled) => requireAccepted(settled, scope));
  }
  if (!verdict.ok) throw invalidCredentials(verdict.reason);
  if (scope === undefined || !verdict.scopes.has(scope)) throw insufficientScope(scope);
}

function notInTime(): never {
  throw new PlantStoreError("queue_full", "the token was not validated in time; send the request again later");
}

/** RFC 6750, section 3.1. */
function insufficientScope(scope: Scope | undefined): PlantStoreError {
  const needed = scope === undefined ? "scope that this operation needs" : `scope "${scope}"`;
  return new PlantStoreError("insufficient_scope", `the token does not have the ${needed}`, { reason: `no ${needed}` });
}

/**
 * RFC 9110, section 11.4 (the scheme compares without case) and RFC 6750, section 2.1 (the token's characters). The
 * bearer plugin wants exactly `Bearer `, and looks into the query where the header has none: it never gets that far.
 * Two Authorization headers arrive joined by a comma, which is in no token.
 */
const CREDENTIALS = /^bearer +([\w\-.~+/]+=*)$/i;

/** What the bearer plugin wants already, as nearly all clients send it: this costs a quarter of taking it apart. */
const NORMAL_CREDENTIALS = /^Bearer [\w\-.~+/]+=*$/;

function normalizeAuthorization(authorization: string | undefined): string {
  if (authorization === undefined) throw new PlantStoreError("missing_credentials");
  if (NORMAL_CREDENTIALS.test(authorization)) return authorization;
  const token = CREDENTIALS.exec(authorization)?.[1];
  if (token === undefined) throw invalidCredentials("malformed");
  return `Bearer ${token}`;
}

/** The same response for every kind of bad credentials: what is wrong with them is for the log only. */
function invalidCredentials(reason: string): PlantStoreError {
  return new PlantStoreError("invalid_credentials", undefined, { reason });
}
