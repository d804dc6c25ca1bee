import { Elysia } from "elysia";

import { eventLoopTurn } from "../async/timers.ts";
import { PlantStoreError } from "../errors.ts";
import { openApiDocument } from "./openapi.ts";

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

/** The files of Swagger UI. Each runtime has its own way to load them. */
export type DocsFiles = Readonly<Record<(typeof DOCS_FILES)[number], Blob>>;

/**
 * The page loads files from its own origin only, and sends requests to it only (CSP level 3). The
 * icons of Swagger UI are data URLs.
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

// Relative URLs, because a proxy may serve this under a prefix: `swagger/json` beside
// `/prefix/swagger`.
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

const STYLE = `/* The target of a link must reach the top, even before Swagger UI has drawn the page. */
body { margin: 0; min-height: 200vh; }

.swagger-ui .info { margin: 20px 0; }
.swagger-ui .info hgroup.main a { font-size: 14px; color: LinkText; }
.swagger-ui .info .url::before { content: "OpenAPI document:"; }
.swagger-ui .opblock-description summary { cursor: pointer; }
.swagger-ui .opblock-description table :is(th, td) { padding-right: 20px; }
.swagger-ui :is(.opblock-description summary, .response-col_description p) { font-size: 14px; }
.swagger-ui :is(.servers-title, .servers) { display: none; }
.swagger-ui .scheme-container { padding: 12px 0; margin: 0 0 12px; }
.swagger-ui .auth-container input { box-sizing: border-box; width: 100%; max-width: none; }

/* No operation has parameters: their bar and the one of the request body become one. */
.swagger-ui .opblock-section { display: grid; grid-template-columns: 1fr auto; }
.swagger-ui .opblock-section-request-body { display: contents; }
.swagger-ui .opblock-section-request-body .opblock-section-header { grid-area: 1 / 1; flex-wrap: wrap; gap: 0 12px; }
.swagger-ui .opblock-section-request-body .opblock-section-header > :is(h4, label) { flex: none; margin: 0; }
.swagger-ui .opblock-section-request-body .opblock-description-wrapper { grid-column: 1 / -1; }
.swagger-ui .opblock-section :is(.parameters-container, .tab-header) { display: none; }
.swagger-ui .opblock-description p { margin: 0; }
.swagger-ui .opblock-description p + p { margin: 5px 0 0; }
.swagger-ui .try-out__btn { padding: 5px 12px; margin: 0; }
.swagger-ui .execute-wrapper:empty { display: none; }
.swagger-ui .body-param__text { min-height: 6lh; padding: 6px; field-sizing: content; }

/* A menu with one choice is a label at most. */
.swagger-ui .body-param-content-type:not(:has(option + option)) select { all: unset; }
.swagger-ui :is(.response-control-media-type, .response-controls:not(:has(option + option))) { display: none; }

/* On a phone, an empty column of links makes the page too wide. */
.swagger-ui .response-col_links { display: none; }
.swagger-ui .response .response-col_status { min-width: 4em; }
.swagger-ui .response :is(.response-controls, .model-example, .headers-wrapper) { margin: 8px 0 0; padding: 0; }
.swagger-ui :is(.responses-table > thead, .response-control-examples__title, .headers__title, .headers thead) { display: none; }
.swagger-ui .response-col_description p + p { margin: 6px 0 0; }
.swagger-ui .response .examples-select { margin: 0; }
.swagger-ui .highlight-code > .microlight { min-height: 0; }
.swagger-ui .highlight-code > .microlight code { word-break: normal; overflow-wrap: anywhere; }

/* All errors have the same schema: Schemas has it. */
.swagger-ui .response:not([data-code="200"]) .tab { display: none; }
.swagger-ui [data-code="default"] .model-example { display: none; }

/* The first header is X-Request-Id, which every response has. The last column says "string". */
.swagger-ui :is(.headers tbody tr:first-child, .headers-wrapper:has(tbody tr:only-child)) { display: none; }
.swagger-ui .headers { width: auto; }
.swagger-ui .headers tr .header-col { padding: 6px 12px 0 0; font: 13px sans-serif; vertical-align: top; }
.swagger-ui .headers tr .header-col:first-child { white-space: nowrap; }
.swagger-ui .headers tr .header-col:last-child { display: none; }
html.dark-mode .swagger-ui :is(.opblock-description td, table.headers td, .examples-select__section-label) { color: #e4e6e6; }

/* With room for it, an example is beside its description. */
@media (min-width: 800px) {
  .swagger-ui [data-code] > .response-col_description > * { float: left; clear: left; width: 49%; }
  .swagger-ui [data-code] > .response-col_description > :is(.response-controls, .model-example) { float: right; clear: right; margin: 0 0 8px; }
}

/* The buttons to copy and to download would cover the text. */
.swagger-ui .live-responses-table .highlight-code { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
.swagger-ui .live-responses-table .highlight-code pre { width: 100%; }
.swagger-ui :is(.download-contents, .highlight-code > .copy-to-clipboard) { position: static; order: 1; }
.swagger-ui .curl-command .copy-to-clipboard { inset: -6px 0 auto auto; }
.swagger-ui .curl-command code { white-space: pre-wrap !important; overflow-wrap: anywhere; }
`;

// The URL of the document is relative, as above. Swagger UI has dark colours, but only its top bar,
// which this page does not have, asks what the reader prefers. It shows a response below the
// screen, and does not scroll there.
const START = `const dark = matchMedia("(prefers-color-scheme: dark)");
const followReader = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followReader);
followReader();

const showResponse = () =>
  document.querySelector(".live-responses-table")?.scrollIntoView({ block: "nearest" });
const setResponse = (set) => (...response) => {
  set(...response);
  requestAnimationFrame(showResponse);
};

SwaggerUIBundle({
  url: "swagger/json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "full",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  plugins: [{ statePlugins: { spec: { wrapActions: { setResponse } } } }],
});
`;

/** Relative to `/swagger/json`: valid under whatever scheme, name and prefix the client uses. */
const THIS_SERVER = { url: "..", description: "This server" };

/**
 * `GET /` redirects to the documentation: Swagger UI under `/swagger`, and the OpenAPI document
 * under `/swagger/json`. All files come from this origin, so the pages need no internet access.
 */
export function docs(files: DocsFiles) {
  const app = new Elysia({ name: "docs" });
  const serve = (path: string, type: string, load: () => Promise<Blob>) => {
    const file = staticFile(type, load);
    app.get(path, ({ request }) => file(request.headers), { detail: { hide: true } });
  };

  const home = { location: "swagger", "x-content-type-options": "nosniff" };
  app.get("/", () => new Response(null, { status: 302, headers: home }), {
    detail: { hide: true },
  });

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

/**
 * Serves a file that never changes: with gzip to clients that accept it, and with an ETag for a 304
 * (RFC 9110, section 13). The first request loads and compresses it, without blocking the event
 * loop.
 */
function staticFile(type: string, load: () => Promise<Blob>) {
  let prepared: ReturnType<typeof prepare> | undefined;

  return async (requested: Headers): Promise<Response> => {
    prepared ??= prepare(load).catch((error: unknown) => {
      prepared = undefined;
      throw error;
    });
    const { content, gzip, digest } = await prepared;

    // A client that names gzip takes it: no browser or proxy sends `gzip;q=0`.
    const isGzip = gzip !== undefined && requested.get("accept-encoding")?.includes("gzip");
    // Two representations, two validators (RFC 9110, section 8.8.3.3).
    const etag = `"${digest}${isGzip ? "-gzip" : ""}"`;
    const common = {
      ...HEADERS,
      etag,
      "cache-control": "no-cache",
      ...(gzip && { vary: "accept-encoding" }),
    };

    // Finds it in a list, and after the `W/` of a proxy that compresses by itself.
    const known = requested.get("if-none-match");
    if (known === "*" || known?.includes(etag)) {
      return new Response(null, { status: 304, headers: common });
    }

    const all = { ...common, "content-type": type, ...(isGzip && { "content-encoding": "gzip" }) };
    if (isGzip) return new Response(gzip, { headers: all });
    if (content.size < LARGE_BYTES) return new Response(content, { headers: all });

    // The first requests wait for the file together: each sees those before it being sent.
    await eventLoopTurn();
    if (sendingLarge >= MAX_SENDING_LARGE) throw new PlantStoreError(...TOO_MANY);

    const headers = { ...all, "content-length": String(content.size) };
    return new Response(countedStream(content), { headers });
  };
}

/** Size from which a response to a slow reader is costly, in bytes. */
const LARGE_BYTES = 65_536;

/**
 * Maximum number of large responses without gzip in flight. The files are public, and a slow reader
 * keeps waking the event loop. Browsers take gzip.
 */
const MAX_SENDING_LARGE = 8;

let sendingLarge = 0;

const TOO_MANY = [
  "queue_full",
  "too many large files are being sent; accept gzip, or try again later",
] as const;

/** A file that counts as being sent from its first byte until its last one, or until its reader is gone. */
function countedStream(content: Blob): ReadableStream<Uint8Array> {
  const reader = content.stream().getReader();
  let isCounted = false;

  const count = (isSending: boolean) => {
    if (isSending === isCounted) return;
    isCounted = isSending;
    sendingLarge += isSending ? 1 : -1;
  };

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        count(true);
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);

        count(false);
        controller.close();
      },
      cancel(reason) {
        count(false);
        return reader.cancel(reason);
      },
    },
    // A response that nobody reads, such as that to HEAD, does not count.
    { highWaterMark: 0 },
  );
}

/** Loads a file, compresses it, and makes the digest that its ETag has. */
async function prepare(load: () => Promise<Blob>) {
  const content = await load();
  const compressing = content.stream().pipeThrough(new CompressionStream("gzip"));
  const gzip = new Uint8Array(await new Response(compressing).arrayBuffer());

  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", gzip));
  const bytes = Array.from(hash.subarray(0, 16));
  const digest = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");

  // A picture is compressed already.
  return { content, gzip: gzip.length < content.size ? gzip : undefined, digest };
}
