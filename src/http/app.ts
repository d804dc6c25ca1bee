import { type AnyElysia, Elysia, NotFoundError } from "elysia";
import { errorResponse, successResponse } from "./responses.ts";
import type { Authenticate } from "../auth/authenticate.ts";
import { bearerGuard } from "./bearer_guard.ts";
import { docs, type DocsFiles } from "./docs.ts";
import { PlantStoreError } from "../errors.ts";
import { health } from "./health.ts";
import { home } from "./home.ts";
import { metrics, type RenderMetrics } from "./metrics.ts";
import type { Observer } from "../observer.ts";
import { plantsApi, type PlantsOptions } from "./plants.ts";
import { pathOf, REQUEST_ID, requestIdOf, withRoutableUrl } from "./request.ts";

/** Everything the app needs from outside; it opens and reads nothing by itself. */
export interface AppOptions extends PlantsOptions {
  /** Who may call. */
  readonly authenticate: Authenticate;
  /** Resolves when a plant could be stored now; throws a `PlantStoreError` when not. */
  readonly ready: () => Promise<void>;
  /** Who watches. */
  readonly observer: Observer;
  /** The files of Swagger UI. @default no documentation pages */
  readonly docsFiles?: DocsFiles | undefined;
  /** Renders `/metrics`. @default no such page */
  readonly renderMetrics?: RenderMetrics;
  /** A plugin that looks at every request from outside. @default none, which costs nothing */
  readonly instrumentation?: AnyElysia | undefined;
}

/**
 * The Plant Store as an Elysia app: `fetch(Request)` is its whole interface, and it runs wherever there are web
 * standards.
 *
 * @example
 * ```ts
 * const app = createApp({ plants, ready, authenticate, maxBodyBytes: 65_536, observer });
 * const response = await app.fetch(new Request("http://localhost/livez"));
 * ```
 */
export function createApp(options: AppOptions) {
  const { authenticate, docsFiles, instrumentation, observer, ready, renderMetrics } = options;
  const api = plantsApi(options);
  const app = new Elysia({
    // "/plants/" is not "/plants".
    strictPath: true,
    // A response is checked, not rewritten.
    normalize: false,
  })
    .wrap((fetch) => (request: Request) => observed(fetch as unknown as Fetch, request))
    // What wraps later is further out.
    .use(instrumentation ?? new Elysia())
    .onError(({ error, path, request }) => {
      if (error instanceof NotFoundError) return noRoute(allowed, path);
      const known = asPlantStoreError(error);
      errors.set(request, known);
      return errorResponse(known);
    })
    .mapResponse({ as: "global" }, ({ response }) => successResponse(response))
    .use(health(ready))
    .use(home({ docs: docsFiles !== undefined }))
    .use(docsFiles === undefined ? new Elysia() : docs(api, docsFiles))
    // What is public stands above, what needs a token below.
    .use(bearerGuard(authenticate))
    .use(renderMetrics === undefined ? new Elysia() : metrics(renderMetrics))
    .use(api);
  const allowed = methodsByPath(app.routes);
  /** What went wrong with a request, until it is told. */
  const errors = new WeakMap<Request, PlantStoreError>();

  // No async function: this is around every request.
  function observed(fetch: Fetch, received: Request): Response | Promise<Response> {
    const start = performance.now();
    const request = withRoutableUrl(received);
    const finish = (response: Response) => {
      const path = pathOf(request);
      const requestId = requestIdOf(request);
      response.headers.set(REQUEST_ID, requestId);
      const error = errors.get(request);
      if (error !== undefined) observer.onError(error, requestId);
      observer.onResponse({
        method: request.method,
        path: allowed.has(path) ? path : "other",
        status: response.status,
        durationMs: performance.now() - start,
        requestId,
      });
      return response;
    };
    const response = fetch(request);
    return response instanceof Promise ? response.then(finish) : finish(response);
  }

  return app;
}

type Fetch = (request: Request) => Response | Promise<Response>;

/** RFC 9110, section 15.5.6: a known path says which methods it takes. */
function noRoute(allowed: ReadonlyMap<string, string>, path: string): Response {
  const allow = allowed.get(path);
  if (allow === undefined) return errorResponse(new PlantStoreError("unknown_path"));
  return errorResponse(new PlantStoreError("method_not_allowed"), { allow });
}

/** Elysia answers HEAD wherever there is a GET. */
function methodsByPath(routes: readonly { path: string; method: string }[]): Map<string, string> {
  return new Map(routes.map(({ path, method }) => [path, method === "GET" ? "GET, HEAD" : method]));
}

/** What is none of our own errors is a fault of ours: its cause is for the log only. */
function asPlantStoreError(error: unknown): PlantStoreError {
  if (error instanceof PlantStoreError) return error;
  return new PlantStoreError("internal", undefined, { cause: error });
}
