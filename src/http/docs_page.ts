/**
 * The Content-Security-Policy: the page loads files from its own origin only, and sends requests
 * only there (CSP level 3). The icons of Swagger UI are data URLs.
 */
export const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/**
 * The page of Swagger UI. Its URLs are relative, because a proxy may serve it under a prefix:
 * `swagger/json` beside `/prefix/swagger`.
 */
export const PAGE = `<!doctype html>
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

/** The style of the page, on top of that of Swagger UI. */
export const STYLE = `/* The target of a link must reach the top, even before Swagger UI has drawn the page. */
body { margin: 0; min-height: 200vh; }

.swagger-ui .info { margin: 20px 0; }
.swagger-ui .info a { color: LinkText; }
.swagger-ui .info hgroup.main a { font-size: 14px; }
.swagger-ui .info .url::before { content: "OpenAPI document:"; }
.swagger-ui .opblock-description summary { cursor: pointer; }
.swagger-ui .opblock-description table :is(th, td) { padding-right: 20px; }
.swagger-ui :is(.opblock-description summary, .response-col_description p) { font-size: 14px; }
.swagger-ui :is(.servers-title, .servers) { display: none; }
.swagger-ui .scheme-container { padding: 12px 0; margin: 0 0 12px; }
.swagger-ui .auth-container input { box-sizing: border-box; width: 100%; max-width: none; }

/* Without parameters, their bar and the one of the request body become one. */
.swagger-ui .opblock-section:has(> .opblock-section-request-body):not(:has(table.parameters)) {
  display: grid; grid-template-columns: 1fr auto;
  :is(.parameters-container, .tab-header) { display: none; }
  .opblock-section-request-body { display: contents; }
  .opblock-section-request-body .opblock-section-header { grid-area: 1 / 1; flex-wrap: wrap; gap: 0 12px; }
  .opblock-section-request-body .opblock-section-header > :is(h4, label) { flex: none; margin: 0; }
  .opblock-section-request-body .opblock-description-wrapper { grid-column: 1 / -1; }
}
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
html.dark-mode .swagger-ui :is(.opblock-description :is(summary, td), table.headers td, .examples-select__section-label) { color: #e4e6e6; }


/* Swagger UI's own colours have a contrast of 2 to 4 (WCAG 2.2, success criterion 1.4.3). */
.swagger-ui .microlight span[style*="211, 99, 99"] { color: #ff9d9d !important; }
html:not(.dark-mode) .swagger-ui {
  .info .title small { background: #5b626e; }
  .info .title small.version-stamp { background: #476300; }
  .opblock-summary-method { color: black; text-shadow: none; }
  .btn.authorize { border-color: #18794e; }
  .btn.authorize :is(span, svg) { color: #18794e; fill: #18794e; }
}

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

/**
 * The script of the page. Swagger UI has dark colors, but only its top bar, which this page omits,
 * follows the reader's preference. It shows a response below the visible part, and does not scroll
 * there. Its menus of examples lack labels: the text beside a menu becomes one.
 */
export const START = `const dark = matchMedia("(prefers-color-scheme: dark)");
const followReader = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followReader);
followReader();

const showResponse = () =>
  document.querySelector(".live-responses-table")?.scrollIntoView({ block: "nearest" });
const setResponse = (set) => (...response) => {
  set(...response);
  requestAnimationFrame(showResponse);
};
const ExamplesSelect = (Original, { React }) => (props) =>
  React.createElement("label", null, React.createElement(Original, { ...props, showLabels: true }));

SwaggerUIBundle({
  url: "swagger/json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "full",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  plugins: [
    { statePlugins: { spec: { wrapActions: { setResponse } } }, wrapComponents: { ExamplesSelect } },
  ],
});
`;
