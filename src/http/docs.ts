import { Elysia } from "elysia";

import { PAGE, POLICY, START, STYLE } from "./docs_page.ts";
import { openApiDocument } from "./openapi.ts";
import { staticFile } from "./static_file.ts";

/**
 * The files of Swagger UI that the page needs, as the npm package `swagger-ui-dist` names them.
 * Install that package to serve the documentation: this one does not depend on it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openAsBlob } from "node:fs";
 * import { DOCS_FILES, type DocsFiles } from "plant-store";
 *
 * const folder = new URL(".", import.meta.resolve("swagger-ui-dist/package.json"));
 * const load = async (name: string) => [name, await openAsBlob(new URL(name, folder))];
 * const docsFiles: DocsFiles = Object.fromEntries(await Promise.all(DOCS_FILES.map(load)));
 *
 * assert(docsFiles["swagger-ui.css"].size > 0);
 * ```
 */
export const DOCS_FILES = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"] as const;

/** The files of Swagger UI. Each runtime loads them in its own way. */
export type DocsFiles = Readonly<Record<(typeof DOCS_FILES)[number], Blob>>;

const HEADERS = { "content-security-policy": POLICY, "x-content-type-options": "nosniff" };

/** Relative to `/swagger/json`: valid under whatever scheme, name and prefix the client uses. */
const THIS_SERVER = { url: "..", description: "This server" };

/**
 * `GET /` and `/swagger/` redirect to the documentation: Swagger UI under `/swagger`, and the OpenAPI document
 * under `/swagger/json`. All files come from this origin, so the pages need no internet access.
 */
export function docs(files: DocsFiles) {
  const app = new Elysia({ name: "docs" });
  const serve = (path: string, type: string, load: () => Promise<Blob>) => {
    const file = staticFile(type, HEADERS, load);
    app.get(path, ({ request }) => file(request.headers), { detail: { hide: true } });
  };

  const redirect = (path: string, location: string) => {
    const headers = { location, "x-content-type-options": "nosniff" };
    app.get(path, () => new Response(null, { status: 302, headers }), { detail: { hide: true } });
  };

  // Relative: a proxy may add a prefix.
  redirect("/", "swagger");
  redirect("/swagger/", "../swagger");

  serve("/swagger", "text/html; charset=utf-8", async () => new Blob([PAGE]));
  serve("/swagger/page.css", "text/css; charset=utf-8", async () => new Blob([STYLE]));
  serve("/swagger/start.js", "text/javascript; charset=utf-8", async () => new Blob([START]));
  serve(
    "/swagger/json",
    "application/json",
    async () => new Blob([JSON.stringify(await openApiDocument(THIS_SERVER))]),
  );
  serve("/swagger/swagger-ui.css", "text/css; charset=utf-8", async () => files["swagger-ui.css"]);
  serve(
    "/swagger/swagger-ui-bundle.js",
    "text/javascript; charset=utf-8",
    async () => files["swagger-ui-bundle.js"],
  );
  serve("/swagger/favicon-32x32.png", "image/png", async () => files["favicon-32x32.png"]);

  return app;
}
