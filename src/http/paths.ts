import type { Scope } from "../auth/authenticate.ts";

/** The access to an operation: `public`, or the scope that a token needs. */
export type Access = "public" | Scope;

/** The methods of a path. `GET` includes `HEAD`. */
type Methods = Readonly<Partial<Record<"GET" | "POST" | "PUT" | "PATCH" | "DELETE", Access>>>;

/** The access to each method of each path. */
type PathTable = Readonly<Record<`/${string}`, Methods>>;

/**
 * Every path of the API, as OpenAPI writes them: `/plants/{id}` has a parameter. A path exists only
 * if it is listed here and has a route. This table determines the methods of a path, their access,
 * the label in metrics and traces, and whether the document asks for a token.
 */
export const PATHS: PathTable = {
  "/plants": { POST: "write" },

  "/livez": { GET: "public" },
  "/readyz": { GET: "public" },
  "/metrics": { GET: "metrics" },

  "/": { GET: "public" },
  "/swagger": { GET: "public" },
  "/swagger/": { GET: "public" },
  "/swagger/json": { GET: "public" },
  "/swagger/page.css": { GET: "public" },
  "/swagger/start.js": { GET: "public" },
  "/swagger/swagger-ui.css": { GET: "public" },
  "/swagger/swagger-ui-bundle.js": { GET: "public" },
  "/swagger/favicon-32x32.png": { GET: "public" },
};

/** A path of the table that has a route. */
export interface Path {
  /** The path as in the table: the label in metrics and traces. */
  readonly pattern: string;
  /** The access to each method. */
  readonly access: ReadonlyMap<string, Access>;
  /** The methods, as the header `Allow` lists them. */
  readonly allow: string;
  /** The methods whose routes have a schema of the query: the others get none. */
  readonly withQuery: ReadonlySet<string>;
}

/** A route of Elysia, which writes parameters as `:id`. */
interface Route {
  readonly path: string;
  readonly method: string;
  /** The schemas of the route, and of the guards around it. */
  readonly hooks?: Schemas & { readonly standaloneValidator?: readonly Schemas[] };
}

interface Schemas {
  readonly query?: unknown;
}

/**
 * Creates a function that finds the path of a request in the table.
 *
 * @param routes The routes of the app.
 * @returns A function that returns `undefined` for an unknown path.
 * @throws {TypeError} If a route is not in the table.
 */
export function pathFinder(
  routes: readonly Route[],
  table: PathTable = PATHS,
): (path: string) => Path | undefined {
  const literal = new Map<string, Path>();
  const withParameters: { readonly regExp: RegExp; readonly path: Path }[] = [];

  for (const path of pathsOf(routes, table)) {
    if (path.pattern.includes("{")) withParameters.push({ regExp: regExpOf(path.pattern), path });
    else literal.set(path.pattern, path);
  }

  const find = (text: string) => withParameters.find(({ regExp }) => regExp.test(text))?.path;
  return (text) => literal.get(text) ?? (withParameters.length === 0 ? undefined : find(text));
}

/** Returns the paths of these routes. Throws a TypeError for a route that is not in the table. */
function pathsOf(routes: readonly Route[], table: PathTable): Path[] {
  const paths = new Map<string, { access: Map<string, Access>; withQuery: Set<string> }>();

  for (const { path, method, hooks = {} } of routes) {
    const pattern = path.replace(/:(\w+)/g, "{$1}") as keyof PathTable;
    const allowed = table[pattern]?.[method as keyof Methods];
    if (allowed === undefined)
      throw new TypeError(`Cannot create the app: ${method} ${pattern} is not in PATHS`);

    const found = paths.get(pattern) ?? { access: new Map(), withQuery: new Set() };
    paths.set(pattern, found);

    const { standaloneValidator = [] } = hooks;
    const hasQuery = [hooks, ...standaloneValidator].some(({ query }) => query !== undefined);
    for (const name of method === "GET" ? ["GET", "HEAD"] : [method]) {
      found.access.set(name, allowed);
      if (hasQuery) found.withQuery.add(name);
    }
  }

  return Array.from(paths, ([pattern, { access, withQuery }]) => {
    return { pattern, access, allow: [...access.keys()].join(", "), withQuery };
  });
}

/** Returns a pattern as a regular expression: a parameter is one segment, which is not empty. */
function regExpOf(pattern: string): RegExp {
  return new RegExp(`^${pattern.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^/]+")}$`);
}

/**
 * Finds the path of a request, and prepares the request for Elysia's router. Replaces its URL in
 * three cases:
 *
 * - It has a query that its operation does not take: Elysia would parse it on every path.
 * - It has a short host: Elysia would not find the path.
 * - It is a bare path: Bun gives that if the Host header is empty or missing (HTTP/1.0).
 *
 * The URL is replaced in place, because a second request would share the body with the first. The
 * property stays configurable, because h3 and Next.js wrap requests in a Proxy, which must report a
 * fixed property unchanged (ECMA-262, section 10.5.8). Nothing here uses the host.
 */
export function findAndNormalize(
  request: Request,
  findPath: (path: string) => Path | undefined,
): Path | undefined {
  const { url } = request;
  const start = url.startsWith("/") ? 0 : url.indexOf("/", AFTER_SCHEME);
  const query = url.indexOf("?", start);
  const path = findPath(url.slice(start, query === -1 ? undefined : query));

  const isDropped = query !== -1 && path?.withQuery.has(request.method) !== true;
  if (isDropped || start < SHORTEST_ORIGIN) {
    const value = `http://localhost${url.slice(start, isDropped ? query : undefined)}`;
    Object.defineProperty(request, "url", { value, configurable: true });
  }

  return path;
}

/**
 * Elysia looks for the path from the eleventh character of the URL on: "http://x/" is too short for
 * it.
 */
const SHORTEST_ORIGIN = 11;

/**
 * Where the search for the path's slash begins. After "http://", which is shorter by one, it skips
 * the first character of the host, which is never a slash.
 */
const AFTER_SCHEME = "https://".length;
