import { type AnyElysia, Elysia } from "elysia";
import { openApiDocument } from "./openapi.ts";
import { staticFile, type StaticFileOptions } from "./static_file.ts";

/**
 * The files of Swagger UI that the page needs, as the npm package `swagger-ui-dist` names them. Install that package to
 * serve the documentation: this one does not depend on it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openAsBlob } from "node:fs";
 * import { DOCS_FILES, type DocsFiles } from "plant-store";
 *
 * const folder = new URL(".", import.meta.resolve("swagger-ui-dist/package.json"));
 * const files = await Promise.all(DOCS_FILES.map(async (name) => [name, await openAsBlob(new URL(name, folder))]));
 * const docsFiles: DocsFiles = Object.fromEntries(files);
 *
 * assert(docsFiles["swagger-ui.css"].size > 0);
 * ```
 */
export const DOCS_FILES = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"] as const;

/** Swagger UI's files: each runtime has its own way to keep them. */
export type DocsFiles = Readonly<Record<(typeof DOCS_FILES)[number], Blob>>;

const TYPES = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  png: "image/png",
} as const;

/**
 * The page loads its own origin's files and talks to its own origin, and nothing else (CSP level 3). Swagger UI draws
 * its icons from data URLs.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HEADERS = { "content-security-policy": POLICY, "x-content-type-options": "nosniff" };

// Relative addresses, because a proxy may serve this under a prefix: `swagger/json` beside `/prefix/swagger`.
const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>Plant Store</title>
    <link rel="icon" type="image/png" href="swagger/favicon-32x32.png" />
    <link rel="stylesheet" href="swagger/swagger-ui.css" />
    <link rel="stylesheet" href="swagger/page.css" />
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="swagger/swagger-ui-bundle.js"></script>
    <script src="swagger/start.js"></script>
  </body>
</html>
`;

// What Swagger UI leaves open. An operation without links has an empty column for them, which with wide buttons and
// rows that cannot wrap is too much for a phone; the columns of the table of errors touch; the names of headers stay
// dark in the dark.
const STYLE = `body { margin: 0; }
.swagger-ui .response-col_links { display: none; }
.swagger-ui .try-out__btn { padding: 5px 12px; }
.swagger-ui .response-controls { flex-wrap: wrap; row-gap: 8px; }
.swagger-ui .info table :is(th, td) { padding-right: 20px; }
html.dark-mode .swagger-ui table.headers td { color: inherit; }
`;

// The address of the document is relative, because a proxy may serve this under a prefix. Swagger UI has dark colours,
// but only its top bar, which this page does not have, asks what the reader prefers.
const START = `const dark = matchMedia("(prefers-color-scheme: dark)");
const followReader = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followReader);
followReader();
SwaggerUIBundle({ url: "swagger/json", dom_id: "#swagger-ui", persistAuthorization: false });
`;

/** Beside `/swagger/json`, so under whatever name, scheme and prefix the client knows this server by. */
const THIS_SERVER = { url: "..", description: "This server" };

/**
 * Swagger UI under `/swagger`, and the OpenAPI document under `/swagger/json`. Everything comes from this origin, so
 * the pages work with no internet.
 *
 * @param api The routes to describe.
 */
export function docs(api: AnyElysia, files: DocsFiles) {
  const app = new Elysia({ name: "docs" });
  const serve = (path: string, type: keyof typeof TYPES, load: StaticFileOptions["load"]) => {
    const file = staticFile({ type: TYPES[type], headers: HEADERS, load });
    app.get(path, ({ request }) => file(request.headers), { detail: { hide: true } });
  };
  serve("/swagger", "html", async () => new Blob([PAGE]));
  serve("/swagger/page.css", "css", async () => new Blob([STYLE]));
  serve("/swagger/start.js", "js", async () => new Blob([START]));
  serve("/swagger/json", "json", async () => new Blob([JSON.stringify(await openApiDocument(api, THIS_SERVER))]));
  serve("/swagger/swagger-ui.css", "css", async () => files["swagger-ui.css"]);
  serve("/swagger/swagger-ui-bundle.js", "js", async () => files["swagger-ui-bundle.js"]);
  serve("/swagger/favicon-32x32.png", "png", async () => files["favicon-32x32.png"]);
  return app;
}
