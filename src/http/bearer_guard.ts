import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";

import { withDeadline } from "../async/deadline.ts";
import type { Authenticate, Caller, Scope, Verdict } from "../auth/authenticate.ts";
import { PlantStoreError } from "../errors.ts";

/**
 * Guards every route that an app registers after it. A request needs a bearer token that
 * `authenticate` accepts, with the scope of the path (RFC 6750). The guard runs before validation,
 * so a caller without a token learns nothing about the body it sent. Use it once in an app: the
 * bearer plugin reads the header only where it is registered first.
 *
 * @param requiredScopes The scope that each path needs. A path that is not listed returns 403.
 * @param callers Gets whose token a request came with, if that is accepted.
 * @throws {PlantStoreError} `missing_credentials`, `invalid_credentials` or `insufficient_scope`.
 */
export function bearerGuard(
  authenticate: Authenticate,
  requiredScopes: Readonly<Record<string, Scope>>,
  callers: Callers,
) {
  // Elysia guesses from a hook's source text whether to await it: it awaits a call after a
  // `return`. It copies what a hook resolves to into the context, which costs more than the check:
  // so this one resolves to nothing.
  return new Elysia({ name: "bearer-guard" })
    .decorate(NO_QUERY)
    .use(bearer())
    .onTransform({ as: "global" }, function authenticateBearer(context) {
      const {
        headers,
        path,
        request,
        bearer: found,
      } = context as typeof context & { readonly bearer?: string };
      return requireAccepted(authenticate(tokenOf(headers["authorization"], found)), {
        scope: requiredScopes[path],
        request,
        callers,
      });
    });
}

/**
 * The bearer plugin reads `query`. Elysia learns that from the plugin's source text, and then parses
 * one; from minified text it does not, and a request without credentials would be an internal error.
 */
const NO_QUERY: { readonly [name: string]: unknown } = { query: {} };

/** Whose token each request came with. A request that is over is forgotten. */
export type Callers = Pick<WeakMap<Request, Caller>, "get" | "set">;

/**
 * How long `authenticate` may take, in milliseconds: longer than fetching the keys of a provider.
 */
const TIMEOUT_MS = 10_000;

interface Required {
  readonly scope: Scope | undefined;
  readonly request: Request;
  readonly callers: Callers;
}

/** Returns a promise only for a promise: a cached token needs none. */
function requireAccepted(
  verdict: Verdict | Promise<Verdict>,
  required: Required,
): void | Promise<void> {
  if (verdict instanceof Promise) {
    const onTimeout = () => {
      throw new PlantStoreError(
        "queue_full",
        "the token was not validated in time; send the request again later",
      );
    };
    return withDeadline(verdict, TIMEOUT_MS, onTimeout).then((settled) =>
      requireAccepted(settled, required),
    );
  }

  if (!verdict.ok) throw invalidCredentials(verdict.reason);

  const { scope, request, callers } = required;
  callers.set(request, verdict);

  if (scope === undefined || !verdict.scopes.has(scope)) {
    // RFC 6750, section 3.1.
    const { lacks = { what: `the required scope "${scope}"`, scope } } = verdict;
    const reason = `the token does not have ${lacks.what}`;
    throw new PlantStoreError("insufficient_scope", reason, { reason, scope: lacks.scope });
  }
}

/**
 * RFC 9110, section 11.4 (the scheme ignores case) and RFC 6750, section 2.1 (the characters of a
 * token). Two Authorization headers arrive joined by a comma, which no token has.
 */
const CREDENTIALS = /^bearer +([\w\-.~+/]+=*)$/i;

/** As nearly all clients send them: this test costs a quarter of taking them apart. */
const USUAL_CREDENTIALS = /^Bearer [\w\-.~+/]+=*$/;

/**
 * The bearer plugin wants exactly `Bearer `, and looks into the query otherwise: that is no
 * credential.
 */
function tokenOf(authorization: string | undefined, found: string | undefined): string {
  if (authorization === undefined) throw new PlantStoreError("missing_credentials");
  const isUsual = USUAL_CREDENTIALS.test(authorization);
  const token = isUsual ? found : CREDENTIALS.exec(authorization)?.[1];
  if (token === undefined) throw invalidCredentials("malformed");
  return token;
}

/** The same response for all invalid credentials: only the log has the reason. */
function invalidCredentials(reason: string): PlantStoreError {
  return new PlantStoreError("invalid_credentials", undefined, { reason });
}
