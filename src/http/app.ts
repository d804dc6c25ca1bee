import { Elysia, ValidationError } from "elysia";

import type { Authenticate } from "../auth/authenticate.ts";
import { PlantStoreError, requireNoMore } from "../errors.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import { bearerGuard, type Exchange } from "./bearer_guard.ts";
import { bodyReader } from "./body.ts";
import { corsFor } from "./cors.ts";
import { docs, type DocsFiles } from "./docs.ts";
import { typedAs } from "./eden_type.ts";
import { health } from "./health.ts";
import type { Observer } from "./observer.ts";
import { pathFinder } from "./paths.ts";
import { plantsApi } from "./plants.ts";
import { respond } from "./responses.ts";

/** Renders the metrics in Prometheus' text format. */
export type RenderMetrics = () => Promise<string>;

/** Options of {@linkcode createApp}. The app itself opens no files or connections. */
export interface AppOptions {
  /** Stores plants. */
  readonly plants: Pick<GroupCommit, "add">;

  /** Authenticates callers. If a verdict takes longer than ten seconds, the response is 503, error 5031. */
  readonly authenticate: Authenticate;

  /** Resolves if a plant could be stored now, and rejects with a `PlantStoreError` if not. */
  readonly ready: () => Promise<void>;

  /**
   * Receives every error and every response. Errors that it throws are printed.
   *
   * @default prints internal errors with `console.error`
   */
  readonly observer?: Observer | undefined;

  /** The maximum size of a body, in bytes. @default {65_536} */
  readonly maxBodyBytes?: number | undefined;

  /**
   * The origins whose pages may call the API (CORS), such as `https://app.example.org`.
   *
   * @default none
   */
  readonly corsOrigins?: readonly string[] | undefined;

  /** Returns the address of a request's client, for logs. @default unknown */
  readonly clientAddress?: ((request: Request) => string | undefined) | undefined;

  /** The files of Swagger UI. @default no documentation pages */
  readonly docsFiles?: DocsFiles | undefined;

  /** Renders `/metrics`. @default no such page */
  readonly renderMetrics?: RenderMetrics | undefined;

  /**
   * Returns whether the server that accepted a request is shutting down: then the response has
   * `Connection: close`. `arrivedAt` is the time of arrival by `performance.now()`.
   *
   * @default never
   */
  readonly isShuttingDown?: ((arrivedAt: number) => boolean) | undefined;
}

/** Prints the cause of an internal error, because the response does not contain it. */
const CONSOLE: Observer = {
  onError(error, { requestId }) {
    if (error.code === "internal") console.error(`Request ${requestId} failed:`, error.cause);
  },
  onResponse() {},
};

/**
 * Creates the app: two functions, `fetch(Request)`, and `handle`, which Eden calls. It needs web
 * standard APIs, `hash` of `node:crypto`, and a runtime that allows code generation while it is
 * created.
 *
 * Responsibilities:
 *
 * - {@linkcode respond} wraps everything else. It checks Host, path and method, makes every error
 *   response, and adds the headers that depend on the request: its id, CORS, `Connection`.
 * - Elysia runs the route: the check of credentials, then the handler, which makes the response of
 *   a success.
 * - Every error takes the same path: a hook or a handler throws it, Elysia's `onError` rethrows it,
 *   and `respond` turns it into a response.
 * - The table in `paths.ts` lists the paths, and who may use them. `respond` and the guard read it.
 *
 * @throws {TypeError} If an option is missing or cannot be used, or the runtime forbids code generation.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createApp, groupCommit, memoryStore, readiness, staticTokens } from "plant-store";
 *
 * const store = memoryStore();
 * const app = createApp({
 *   plants: groupCommit(store),
 *   ready: readiness(() => store.probe()),
 *   authenticate: staticTokens(["a-token-of-the-greenhouse"]),
 * });
 * const response = await app.fetch(
 *   new Request("http://localhost/plants", {
 *     method: "POST",
 *     headers: {
 *       authorization: "Bearer a-token-of-the-greenhouse",
 *       "content-type": "application/json",
 *     },
 *     body: JSON.stringify({ id: 1, name: "Fern" }),
 *   }),
 * );
 *
 * assert.deepEqual(await response.json(), { name: "Fern" });
 * ```
 */
export function createApp(options: AppOptions) {
  requireParts(options);
  requireCodeGeneration();
  const {
    plants,
    authenticate,
    ready,
    observer = CONSOLE,
    maxBodyBytes,
    corsOrigins = [],
    clientAddress = () => undefined,
    docsFiles,
    renderMetrics,
    isShuttingDown = () => false,
    ...rest
  } = options;
  requireNoMore(rest);

  const body = bodyReader(maxBodyBytes);
  const exchanges = new WeakMap<Request, Exchange>();

  // Check a response, but do not rewrite it. Generate code now, not at the first request.
  // Distinguish `/swagger/` from `/swagger`.
  const base = new Elysia({ normalize: false, precompile: true, strictPath: true }).onError(
    throwAgain,
  );
  // Register the guard before the routes. Drop its type on purpose: clients need not see it.
  base.use(bearerGuard(authenticate, exchanges));

  const app = base.use(health(ready));
  if (docsFiles !== undefined) app.use(docs(docsFiles));
  if (renderMetrics !== undefined) app.use(metrics(renderMetrics));
  const whole = app.use(plantsApi(plants, body.read));

  const handle = whole.fetch;
  const cors = corsOrigins.length === 0 ? undefined : corsFor(corsOrigins);
  const fetch = respond({
    handle,
    findPath: pathFinder(whole.routes),
    observer,
    exchanges,
    cors,
    hasUnreadBody: body.hasUnread,
    clientAddress,
    isShuttingDown,
  });

  return typedAs(whole, { fetch, handle: async (request) => fetch(request) });
}

/**
 * Rethrows an error from Elysia's `onError`, so that `respond` makes the response: Elysia would
 * take the error's own status and body. A request that a route's schema refuses is the client's
 * error.
 */
export function throwAgain({ error }: { error: unknown }): never {
  if (error instanceof ValidationError && error.type !== "response") throw invalidParameters(error);
  throw error;
}

/** Returns an error that names the refused parameters and their place. */
function invalidParameters({ all, type, valueError }: ValidationError): PlantStoreError {
  const faults = new Map<string, string>();
  for (const { path = "", value } of all as readonly ValueError[]) {
    const [, name = ""] = path.split("/");
    if (name !== "") faults.set(name, value === undefined ? "is missing" : "is not valid");
  }

  const named = Array.from(faults, ([name, fault]) => `\`${name}\` ${fault}`).join("; ");
  // Elysia does not name the parameter if a number is out of bounds.
  const where = type === "params" ? "path" : type;
  const message =
    named === "" ? `a parameter is not valid: ${valueError?.message}` : `in the ${where}: ${named}`;
  return new PlantStoreError("invalid_plant", message);
}

/** Elysia's description of an invalid value; it may omit each part. */
type ValueError = Partial<Pick<NonNullable<ValidationError["valueError"]>, "path" | "value">>;

/** `GET /metrics`. */
function metrics(render: RenderMetrics) {
  const headers = {
    "content-type": "text/plain; version=0.0.4; charset=utf-8",
    // A cached copy would be out of date.
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  };

  return new Elysia({ name: "metrics" }).get(
    "/metrics",
    async () => new Response(await render(), { headers }),
    { detail: { hide: true } },
  );
}

/**
 * Checks the options for programs in JavaScript: otherwise a missing one would fail at the first
 * request.
 *
 * @throws {TypeError} If an option is missing, or cannot be used.
 */
function requireParts({ plants, authenticate, ready, ...others }: AppOptions): void {
  const { observer = CONSOLE, clientAddress, renderMetrics, isShuttingDown } = others;
  const required = {
    "plants.add": plants?.add,
    ready,
    authenticate,
    "observer.onError": observer?.onError,
    "observer.onResponse": observer?.onResponse,
  };
  const optional = { clientAddress, renderMetrics, isShuttingDown };
  const given = Object.entries(optional).filter(([, part]) => part !== undefined);

  for (const [name, part] of [...Object.entries(required), ...given]) {
    if (typeof part !== "function")
      throw new TypeError(`Cannot create the app: \`${name}\` must be a function`);
  }

  if ("probe" in plants)
    throw new TypeError("Cannot create the app: `plants` is a store: use groupCommit(store)");
}

/**
 * Checks that code generation is allowed. Without it, Elysia ends a Node process, and no handler
 * can catch that.
 */
function requireCodeGeneration(): void {
  try {
    Function();
  } catch (cause) {
    throw new TypeError("Cannot create the app: this runtime forbids code generation", { cause });
  }
}
