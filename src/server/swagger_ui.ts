import { resolve } from "node:path";

import icon from "swagger-ui-dist/favicon-32x32.png" with { type: "file" };
import script from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };

import type { DocsFiles } from "../http/docs.ts";

import css from "swagger-ui-dist/swagger-ui.css" with { type: "file" };

/**
 * The files of Swagger UI. An import is a path in their package or inside the executable. In a
 * bundle it is only a file's name: so it is resolved from this folder.
 */
export const swaggerUi: DocsFiles = {
  "swagger-ui.css": Bun.file(resolve(import.meta.dirname, css)),
  "swagger-ui-bundle.js": Bun.file(resolve(import.meta.dirname, script)),
  "favicon-32x32.png": Bun.file(resolve(import.meta.dirname, icon)),
};
