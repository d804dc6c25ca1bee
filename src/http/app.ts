import type { Authenticate } from "../auth/authenticate.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { Observer } from "./observer.ts";
import { bearerGuard, type RequiredScopes } from "./bearer_guard.ts";
import { docs, type DocsFiles } from "./docs.ts";
import { health } from "./health.ts";
import { lifecycle } from "./lifecycle.ts";
import { metrics, type RenderMetrics } from "./metrics.ts";
import { plantsApi } from "./plants.ts";

/** Everything the app needs from outside; it opens and reads nothing by itself. */
export interface AppOptions {
  /** Where plants go. */
  readonly plants: Pick<GroupCommit, "add">;
  /** Who may call. */
  readonly authenticate: Authenticate;
  /** Resolves when a plant could be stored now; throws a `PlantStoreError` when not. */
  readonly ready: () => Promise<void>;
  /** Gets every error and every response. @default prints the internal errors by `console.error`, and nothing else */
  readonly observer?: Observer | undefined;
  /** The most a body may have, in bytes. @default {65_536} */
  readonly maxBodyBytes?: number | undefined;
  /** The origins whose pages may call, such as `https://app.example.org`. @default none */
  readonly corsOrigins?: readonly string[] | undefined;
  /** The address of a request's client, for logs. @default unknown */
  readonly clientAddress?: ((request: Request) => string | undefined) | undefined;
  /** The files of Swagger UI. @default no documentation pages */
  readonly docsFiles?: DocsFiles | undefined;
  /** Renders `/metrics`. @default no such page */
  readonly renderMetrics?: RenderMetrics | undefined;
  /** Whether the server is shutting down: then every response asks its client to close the connection. @default never */
  readonly isShuttingDown?: (() => boolean) | undefined;
}

/** The client is told nothing of an internal error: without this line nobody could find its cause. */
const CONSOLE: Observer = {
  onError(error, { requestId }) {
    if (error.code === "internal") console.error(`Request ${requestId} failed:`, error.cause);
  },
  onResponse() {},
};

/** A route below the guard without an entry here is refused with 403. */
const REQUIRED_SCOPES: RequiredScopes = { "/plants": "write", "/metrics": "metrics" };

/**
 * The Plant Store as an Elysia app: `fetch(Request)` is its whole interface, and it runs wherever there are web
 * standards.
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
 *     headers: { authorization: "Bearer a-token-of-the-greenhouse", "content-type": "application/json" },
 *     body: JSON.stringify({ id: 1, name: "Fern" }),
 *   }),
 * );
 *
 * assert.deepEqual(await response.json(), { name: "Fern" });
 * ```
 */
export function createApp(options: AppOptions) {
  const {
    clientAddress = () => undefined,
    corsOrigins = [],
    docsFiles,
    isShuttingDown = () => false,
    maxBodyBytes = 65_536,
    observer = CONSOLE,
    renderMetrics,
  } = options;
  const api = plantsApi({ plants: options.plants, maxBodyBytes });
  const allowed = new Map<string, string>();
  const app = lifecycle({ observer, allowed, maxBodyBytes, clientAddress, corsOrigins, isShuttingDown });
  app.use(health(options.ready));
  if (docsFiles !== undefined) app.use(docs(api, docsFiles));
  // Routes above are public, routes below need a token.
  app.use(bearerGuard(options.authenticate, REQUIRED_SCOPES));
  if (renderMetrics !== undefined) app.use(metrics(renderMetrics));
  const whole = app.use(api);
  for (const { path, method } of whole.routes) allowed.set(path, methodsOf(method));
  return whole;
}

/** Elysia answers HEAD wherever there is a GET. */
function methodsOf(method: string): string {
  return method === "GET" ? "GET, HEAD" : method;
}
