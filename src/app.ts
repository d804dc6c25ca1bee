import { Elysia, NotFoundError, ValidationError } from "elysia";
import { errorAnswer, successAnswer } from "./answers.ts";
import { docs, type DocsFiles } from "./docs.ts";
import { PlantStoreError } from "./errors.ts";
import { health } from "./health.ts";
import { plantsApi, type PlantsOptions } from "./plants.ts";

/** Everything the app needs from outside; it opens and reads nothing by itself. */
export interface AppOptions extends PlantsOptions {
  /** Resolves when a plant could be stored now; throws a `PlantStoreError` when not. */
  readonly ready: () => Promise<void>;
  /** The files of Swagger UI. @default no documentation pages */
  readonly docsFiles?: DocsFiles | undefined;
  /** Told of every fault of ours, with the id that its answer carries. */
  readonly onFault: (cause: unknown, requestId: string) => void;
}

/**
 * The Plant Store as an Elysia app: `fetch(Request)` is its whole interface, and it runs wherever there are web
 * standards.
 *
 * @example
 * ```ts
 * const app = createApp({ plants, ready, authenticate, maxBodyBytes: 65_536, onFault: console.error });
 * const answer = await app.fetch(new Request("http://localhost/livez"));
 * ```
 */
export function createApp(options: AppOptions) {
  const api = plantsApi(options);
  const app = new Elysia({
    // "/plants/" is not "/plants".
    strictPath: true,
    // A body is checked, not rewritten.
    normalize: false,
    // Whatever Elysia would say of an invalid body is never sent, so it need not be composed.
    allowUnsafeValidationDetails: true,
  })
    .wrap((fetch, request) => (isUnroutable(request) ? () => fetch(withPlainHost(request)) : fetch))
    .onError(({ error, path }) => {
      if (error instanceof PlantStoreError) return errorAnswer(error);
      if (error instanceof ValidationError && error.type === "body") return errorAnswer(invalidPlant(error));
      return error instanceof NotFoundError ? noRoute(allowed, path) : fault(error, options.onFault);
    })
    .mapResponse({ as: "global" }, ({ response }) => successAnswer(response))
    .use(health(options.ready))
    .use(options.docsFiles === undefined ? new Elysia() : docs(api, options.docsFiles))
    .use(api);
  const allowed = methodsByPath(app.routes);
  return app;
}

/** Elysia looks for the path from the eleventh character of the URL on: "http://x/" is too short for it. */
const SHORTEST_ORIGIN = 11;
const AFTER_SCHEME = "https://".length;

/** Bun gives a bare path where the Host header is empty, missing (HTTP/1.0) or no host at all. */
function isUnroutable({ url }: Request): boolean {
  return url.startsWith("/") || url.indexOf("/", AFTER_SCHEME) < SHORTEST_ORIGIN;
}

/** The host means nothing to this service, so any other one does. */
function withPlainHost(request: Request): Request {
  const { pathname, search } = new URL(request.url, "http://localhost");
  return new Request(`http://localhost${pathname}${search}`, request);
}

/** Names every field at fault: each schema carries its own sentence. */
function invalidPlant({ all }: ValidationError): PlantStoreError {
  const sentences = all.map(({ schema }) => String(schema["error"]));
  return new PlantStoreError("invalid_plant", [...new Set(sentences)].join("; "));
}

/** RFC 9110, section 15.5.6: a known path says which methods it takes. */
function noRoute(allowed: ReadonlyMap<string, string>, path: string): Response {
  const allow = allowed.get(path);
  if (allow === undefined) return errorAnswer(new PlantStoreError("unknown_path"));
  return errorAnswer(new PlantStoreError("method_not_allowed"), { allow });
}

/** Elysia answers HEAD wherever there is a GET. */
function methodsByPath(routes: readonly { path: string; method: string }[]): Map<string, string> {
  return new Map(routes.map(({ path, method }) => [path, method === "GET" ? "GET, HEAD" : method]));
}

/** The answer to a fault of ours: the cause goes to `onFault` only, with the id that the answer carries. */
export function fault(cause: unknown, onFault: AppOptions["onFault"]): Response {
  const requestId = crypto.randomUUID();
  onFault(cause, requestId);
  return errorAnswer(new PlantStoreError("internal"), { "x-request-id": requestId });
}
